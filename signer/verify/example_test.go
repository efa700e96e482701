package verify_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/milena-project/milena/signer/verify"
)

// A request as Milena sends it; the values are the example of the Standard Webhooks
// specification.
func exampleRequest() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(`{"test": 2432232314}`))
	r.Header.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	r.Header.Set("webhook-timestamp", "1614265330")
	r.Header.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	return r
}

func exampleNow() time.Time { return time.Unix(1614265330, 0).Add(time.Second) }

func ExampleVerifier_Verify() {
	v, err := verify.New(verify.Config{
		Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		Now:     exampleNow, // leave it out in a real receiver
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := exampleRequest()
	body, _ := io.ReadAll(r.Body)
	m, err := v.Verify(r.Header, body)
	fmt.Println(m.ID, string(m.Body), err)

	_, err = v.Verify(r.Header, append(body, ' '))
	fmt.Println(err, errors.Is(err, verify.ErrNoMatch))
	// Output:
	// msg_p5jXN8AQM9LWM0D4loKWxJek {"test": 2432232314} <nil>
	// webhook refused: no signature matches: another secret, or the body or headers were changed on the way true
}

func ExampleMiddleware() {
	v, err := verify.New(verify.Config{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, Now: exampleNow})
	if err != nil {
		fmt.Println(err)
		return
	}
	once, err := verify.Middleware(v, verify.Options{Store: verify.NewMemory(24*time.Hour, 0)})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, _ := verify.FromContext(r.Context())
		fmt.Println("handled", m.ID)
		w.WriteHeader(http.StatusNoContent)
	}))
	for range 2 { // the second is a repeat: at least once means sometimes twice
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, exampleRequest())
		fmt.Println(w.Code)
	}
	// Output:
	// handled msg_p5jXN8AQM9LWM0D4loKWxJek
	// 204
	// 200
}

func ExampleNew_stripe() {
	v, err := verify.New(verify.Config{
		Secrets: []string{"whsec_new", "whsec_old"}, // both, while the secret is being rotated
		Scheme:  verify.Stripe,
		Header:  "ProofLedger-Signature",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = v.Verify(http.Header{}, []byte("{}"))
	fmt.Println(err)
	// Output: webhook refused: missing header ProofLedger-Signature
}
