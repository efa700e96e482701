package dlq

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
