package dlq

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
)

// Its record cannot be written any more while a letter waits for its turn or for room;
// then somebody else may have the run.
func TestARunnerThatHasBeenSilentWritesNothingHoweverLongALetterHasWaited(t *testing.T) {
	for name, delay := range map[string]func(*testing.T, *runner){
		"by the rate": func(t *testing.T, r *runner) {
			r.pace = newPace(1.0/60, 0)
			if err := r.pace.wait(t.Context()); err != nil { // the first of its minute
				t.Fatal(err)
			}
		},
		"for room": func(t *testing.T, r *runner) {
			if err := r.room.Acquire(t.Context(), inFlightBytes); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Minute, func() { r.room.Release(inFlightBytes) })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &runner{pace: newPace(0, 0), room: semaphore.NewWeighted(inFlightBytes)}
			r.lastOK.Store(time.Now().UnixNano())
			delay(t, r)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := r.admit(ctx, entryWeight); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			if !r.room.TryAcquire(inFlightBytes) {
				t.Errorf("%s: what was not written takes room still", name)
			}
		})
	}
}
