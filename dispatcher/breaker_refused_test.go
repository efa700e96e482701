package dispatcher

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A wrong route: every event is refused for ten minutes, and a refusal is final.
func TestAReceiverThatRefusesEverythingCostsFewDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.answers(func(*http.Request) (*http.Response, error) { return status(400), nil }) // final in this world
		for range 600 {
			w.send("e", 50)
			time.Sleep(time.Second)
		}
		w.see(func() {
			if len(w.letters) > 150 {
				t.Errorf("%d dead letters in ten minutes", len(w.letters))
			}
		})
		refused := len(w.letters)
		w.answers(func(*http.Request) (*http.Response, error) { return status(200), nil })
		time.Sleep(15 * time.Minute)
		w.see(func() {
			if len(w.letters) != refused || len(w.posts) != 30_000 {
				t.Errorf("%d more dead letters and %d POSTs after it was mended, want none and 30000", len(w.letters)-refused, len(w.posts))
			}
		})
	})
}
