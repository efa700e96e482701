package verify_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
	"github.com/milena-project/milena/signer/verify"
)

func request(t testing.TB, id, body string) *http.Request {
	t.Helper()
	s, err := signer.New(schemas.Signing{}, []signer.Key{{Secret: secretA}})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
	if err := s.Sign(r.Header, id, now, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return r
}

func gate(t testing.TB, o verify.Options, h http.HandlerFunc) http.Handler {
	t.Helper()
	mw, err := verify.Middleware(verifier(t, verify.Config{Secrets: []string{secretA}}), o)
	if err != nil {
		t.Fatal(err)
	}
	return mw(h)
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestTheHandlerGetsTheRawBody(t *testing.T) {
	h := gate(t, verify.Options{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, ok := verify.FromContext(r.Context())
		fmt.Fprint(w, string(body), ok, string(m.Body), m.ID, m.Time.Equal(now))
	})
	if got := serve(h, request(t, "msg_1", "{ }")).Body.String(); got != "{ }true{ }msg_1true" {
		t.Error(got)
	}
}

func TestRequestsThatAreNotVerifiedDoNotReachTheHandler(t *testing.T) {
	var refused []error
	h := gate(t, verify.Options{MaxBody: 10, OnRefused: func(_ *http.Request, err error) { refused = append(refused, err) }}, func(http.ResponseWriter, *http.Request) {
		t.Error("the handler was reached")
	})
	forged := request(t, "msg_1", "{}")
	forged.Header.Set("webhook-id", "msg_2")
	if w := serve(h, forged); w.Code != 401 || strings.Contains(w.Body.String(), "whsec") {
		t.Error(w.Code, w.Body)
	}
	if w := serve(h, request(t, "msg_1", strings.Repeat("x", 11))); w.Code != 413 {
		t.Error(w.Code)
	}
	cut := request(t, "msg_1", "{}")
	cut.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), cutReader{}))
	if w := serve(h, cut); w.Code != 400 {
		t.Error(w.Code)
	}
	if len(refused) != 3 || !errors.Is(refused[0], verify.ErrNoMatch) || !errors.Is(refused[1], verify.ErrTooLarge) || !errors.Is(refused[2], verify.ErrMalformed) {
		t.Error(refused)
	}
}

type cutReader struct{}

func (cutReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestAMessageIsHandledOnceAndAFailedOneAgain(t *testing.T) {
	var runs atomic.Int32
	status := 500
	h := gate(t, verify.Options{Store: verify.NewMemory(0, 0)}, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		if status > 0 {
			w.WriteHeader(status)
		}
	})
	for i, step := range []struct{ handler, want, runs int }{
		{500, 500, 1}, {302, 302, 2}, {404, 404, 3}, {300, 300, 4}, {-1, 200, 5}, {500, 200, 5}, {500, 200, 5},
	} {
		status = step.handler
		if w := serve(h, request(t, "msg_1", "{}")); w.Code != step.want || int(runs.Load()) != step.runs {
			t.Errorf("step %d: %d after %d runs", i, w.Code, runs.Load())
		}
	}
	status = 0
	func() {
		defer func() {
			if p := recover(); p != any(http.ErrAbortHandler) {
				t.Error("the panic was swallowed")
			}
		}()
		serve(h, request(t, "msg_2", "{}"))
	}()
	status = 201
	if w := serve(h, request(t, "msg_2", "{}")); w.Code != 201 {
		t.Errorf("after a panic: %d", w.Code)
	}
}

func TestAClaimInProgressIsTriedAgainByEverySender(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	h := gate(t, verify.Options{Store: verify.NewMemory(0, 0), RetryAfter: 1500 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-finish
	})
	var wg sync.WaitGroup
	wg.Go(func() { serve(h, request(t, "msg_1", "{}")) })
	<-started
	if w := serve(h, request(t, "msg_1", "{}")); w.Code != http.StatusTooEarly || w.Header().Get("Retry-After") != "2" {
		t.Error(w.Code, w.Header())
	}
	close(finish)
	wg.Wait()
	if w := serve(h, request(t, "msg_1", "{}")); w.Code != 200 {
		t.Error(w.Code)
	}
}

func TestManyAtOnceRunTheHandlerOnce(t *testing.T) {
	var runs atomic.Int32
	h := gate(t, verify.Options{Store: verify.NewMemory(0, 0)}, func(http.ResponseWriter, *http.Request) { runs.Add(1) })
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { serve(h, request(t, "msg_1", "{}")) })
	}
	wg.Wait()
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

type brokenStore struct{ released, confirmed atomic.Int32 }

var errStore = errors.New("database away")

func (s *brokenStore) Claim(_ context.Context, id string) (verify.ClaimState, error) {
	if id == "msg_broken" {
		return 0, errStore
	}
	return verify.Claimed, nil
}
func (s *brokenStore) Confirm(context.Context, string) error { s.confirmed.Add(1); return errStore }
func (s *brokenStore) Release(ctx context.Context, _ string) error {
	s.released.Add(1)
	return ctx.Err()
}

func TestAStoreThatFailsAnswers503AndClaimsEndWithoutTheSender(t *testing.T) {
	s := &brokenStore{}
	var told []error
	h := gate(t, verify.Options{Store: s, OnRefused: func(_ *http.Request, err error) { told = append(told, err) }}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(500)
	})
	if w := serve(h, request(t, "msg_broken", "{}")); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Error(w.Code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the sender hung up
	serve(h, request(t, "msg_1", "{}").WithContext(ctx))
	if s.released.Load() != 1 || len(told) != 1 || !errors.Is(told[0], errStore) {
		t.Errorf("%d releases, told %v", s.released.Load(), told)
	}
}

func TestAStoreNeedsAnIDHeader(t *testing.T) {
	v := verifier(t, verify.Config{Secrets: []string{secretA}, Scheme: verify.Stripe})
	if _, err := verify.Middleware(v, verify.Options{Store: verify.NewMemory(0, 0)}); !errors.Is(err, verify.ErrConfig) {
		t.Error(err)
	}
}

func TestMemoryForgetsByTimeAndBySizeButNeverWhatIsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := verify.NewMemory(time.Hour, 3)
		claim := func(id string, want verify.ClaimState) {
			t.Helper()
			if got, err := m.Claim(ctx, id); got != want || err != nil {
				t.Errorf("claim %s: %v %v, want %v", id, got, err, want)
			}
		}
		for _, id := range []string{"a", "b"} {
			claim(id, verify.Claimed)
			_ = m.Confirm(ctx, id)
			time.Sleep(time.Minute)
		}
		claim("busy", verify.Claimed)
		claim("b", verify.Done)
		claim("c", verify.Claimed) // full: a, the oldest, goes
		claim("b", verify.Done)
		claim("busy", verify.InProgress)
		claim("d", verify.Claimed) // b goes
		if _, err := m.Claim(ctx, "e"); !errors.Is(err, verify.ErrStoreFull) {
			t.Errorf("three in progress of three: %v", err)
		}
		_ = m.Confirm(ctx, "c")
		_ = m.Release(ctx, "c") // too late: it is done
		claim("c", verify.Done)
		time.Sleep(time.Hour)
		claim("c", verify.Claimed) // its time is over
		claim("busy", verify.InProgress)
	})
}
