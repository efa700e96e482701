package flowtest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
)

// What waits in a tier is a metric, and no lag of the releaser.
func TestWhatWaitsForItsNextTryIsAMetric(t *testing.T) {
	f := newFlow(t)
	f.endpoint("e", schedule(3*time.Hour)) // it stays there, however slow the machine is
	f.receiver.Script("/e", testkit.Status(http.StatusInternalServerError))
	p := f.start()
	f.ready(p)
	f.send(3, 100, "e")
	f.receiver.WaitFor(t, 3, 20*time.Second)
	testkit.Eventually(t, 40*time.Second, func() string {
		rec := httptest.NewRecorder()
		p.app.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		text := rec.Body.String()
		for _, want := range []string{`milena_waiting_records{tier="2h"} 3`, `milena_overdue_records{tier="2h"} 0`} {
			if !strings.Contains(text, want) {
				return "no " + want
			}
		}
		return ""
	})
}
