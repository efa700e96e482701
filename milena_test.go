package milena_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/milena-project/milena"
)

const ring = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

func TestNewNamesEverySettingThatIsWrong(t *testing.T) {
	_, err := milena.New(milena.Config{
		Brokers: []string{"127.0.0.1:1"}, KeyRing: ring,
		Settings: map[string]string{"dispatcher.max_inflight": "5", "retry.max_age": "never"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"dispatcher.max_inflight", "dispatcher.max_in_flight", "retry.max_age", "never"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %q: %v", want, err)
		}
	}
}

func TestNewNeedsBrokersAndKeyRing(t *testing.T) {
	if _, err := milena.New(milena.Config{KeyRing: ring}); err == nil || !strings.Contains(err.Error(), "milena.Config.Brokers") || strings.Contains(err.Error(), "--brokers") {
		t.Errorf("without brokers: %v", err)
	}
	if _, err := milena.New(milena.Config{Brokers: []string{""}, KeyRing: ring}); err == nil || !strings.Contains(err.Error(), "milena.Config.Brokers") {
		t.Errorf("with an empty list from the environment: %v", err)
	}
	if _, err := milena.New(milena.Config{Brokers: []string{"127.0.0.1:1"}}); err == nil || !strings.Contains(err.Error(), "KeyRing") {
		t.Errorf("without a key ring: %v", err)
	}
}

func TestHandlerSaysNotReadyBeforeTheStart(t *testing.T) {
	m, err := milena.New(milena.Config{Brokers: []string{"127.0.0.1:1"}, KeyRing: ring})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusOK} {
		rec := httptest.NewRecorder()
		m.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if rec.Code != want {
			t.Errorf("%s answered %d, want %d", path, rec.Code, want)
		}
	}
}
