package dlq

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestPartitionsHaveTheirTurnsOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := make(chan struct{}, 1)
		var got []string
		read := func(name string) {
			turn := &turn{of: of}
			if err := turn.begin(t.Context()); err != nil {
				t.Error(err)
			}
			defer turn.end()
			for range 3 {
				got = append(got, name) // the turn guards it
				time.Sleep(time.Second)
				if err := turn.next(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			wg.Go(func() { read(name) })
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		late := &turn{of: of}
		if err := late.begin(gone); err == nil {
			t.Error("a turn was had by one whose context had ended, while another had it")
		}
		late.end() // gives nothing back
		wg.Wait()
		if text := strings.Join(got, ""); text != "abcabcabc" {
			t.Errorf("the turns went %s", text)
		}
		if len(of) != 0 {
			t.Error("a turn was not given back")
		}
	})
}

// of has no room, so each begin and each end waits for the test, which counts them.
func TestWhatIsRereadGivesItsTurnBackAfterEachChunk(t *testing.T) {
	w := newWorld(t)
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	const batches = 3
	for range batches {
		d := w.delivery("ep_1")
		d.Payload = noise(r, 40<<10) // more than is asked for at once
		w.die(d, schemas.ReasonExhausted, time.Now())
		w.flush()
	}
	sel, err := w.store.Select(w.ctx(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	of, ended, turns, letters := make(chan struct{}), make(chan error, 1), 0, 0
	part := partitionOf("ep_1")
	go func() {
		ended <- w.store.reread(w.ctx(), sel, part, sel.offsets[part], 16<<10, &turn{of: of}, func(*Entry) error { letters++; return nil })
	}()
	for {
		select {
		case <-of:
			turns++
			of <- struct{}{}
		case err := <-ended:
			if err != nil || letters != batches || turns <= batches {
				t.Errorf("%d letters in %d turns, %v", letters, turns, err)
			}
			return
		}
	}
}
