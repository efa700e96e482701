package devmode

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

// post sends a signed request as the dispatcher would.
func post(t *testing.T, r *Receiver, endpoint, secret, messageID string) int {
	t.Helper()
	body := []byte(`{"a":1}`)
	s, err := signer.New(schemas.Signing{}, []signer.Key{{Secret: secret}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Addr+"/"+endpoint, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	if err := s.Sign(req.Header, messageID, time.Now(), body); err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

func TestTheReceiverVerifiesBeforeItAnswers(t *testing.T) {
	r, err := StartReceiver("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	var accepted []string
	r.Accepted = func(endpoint, id string) { accepted = append(accepted, endpoint+" "+id) }
	right, err := signer.GenerateSecret(24)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := signer.GenerateSecret(24)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{Good, Flaky, Dead} {
		if err := r.Expect(id, right); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int{204, 204, 401, 503, 404} {
		endpoint := []string{Good, Good, Good, Dead, "nobody"}[i]
		secret := []string{right, right, wrong, right, right}[i]
		if got := post(t, r, endpoint, secret, "msg_1"); got != want {
			t.Errorf("%d to %s: %d, want %d", i, endpoint, got, want)
		}
	}
	if len(accepted) != 1 || accepted[0] != "good msg_1" {
		t.Error(accepted)
	}
	if c := r.Count(Good); c != (Received{Requests: 3, Verified: 2, Bad: 1, Accepted: 1}) {
		t.Errorf("%+v", c)
	}
	failed := 0
	for i := range 400 {
		if post(t, r, Flaky, right, "msg_"+strconv.Itoa(i)) == 500 {
			failed++
		}
	}
	if failed < 65 || failed > 175 { // 30 %; six standard deviations are 55
		t.Errorf("flaky failed %d of 400", failed)
	}
}

func TestSampleEventsLookRealAndAreRepeatable(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	smallest, largest := 1<<20, 0
	for n := range 400 {
		s := NewSample(n, 1, now)
		if s.Type != SampleTypes[n%len(SampleTypes)] || s.Subject == "" || !json.Valid(s.Data) {
			t.Fatalf("%d: %+v", n, s)
		}
		smallest, largest = min(smallest, len(s.Data)), max(largest, len(s.Data))
		if again := NewSample(n, 1, now); !bytes.Equal(s.Data, again.Data) {
			t.Fatalf("sample %d is not repeatable", n)
		}
	}
	if smallest < 300 || largest > 20_000 || largest < 8000 {
		t.Errorf("samples of %d to %d bytes", smallest, largest)
	}
}
