package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

func TestOnlyWhatIsSignedWithTheSecretOfTheFileIsTaken(t *testing.T) {
	secret, err := os.ReadFile("../compose/echo.secret")
	if err != nil {
		t.Fatal(err)
	}
	h, err := handler(slog.New(slog.DiscardHandler), strings.TrimSpace(string(secret)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := signer.New(schemas.Signing{}, []signer.Key{{Secret: strings.TrimSpace(string(secret))}})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]int{"signed": http.StatusNoContent, "changed": http.StatusUnauthorized} {
		r := httptest.NewRequest(http.MethodPost, "/webhooks", strings.NewReader(body))
		if err := s.Sign(r.Header, "msg_"+body, time.Now(), []byte("signed")); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", body, w.Code, want)
		}
	}
}
