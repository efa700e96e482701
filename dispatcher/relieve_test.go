package dispatcher

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestIntakeWaitsWhileAPartitionIsFullAndNoLaneStandsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{PartitionOffsets: 10})
		w.endpoint("a", one)
		w.endpoint("b", one)
		w.answers(func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return status(200), nil
		})
		before := time.Now()
		for range 10 {
			w.send("a", 1)
			w.send("b", 1)
		}
		if took := time.Since(before); took != 500*time.Millisecond {
			t.Errorf("20 records were taken in after %s, want 500 ms", took)
		}
		time.Sleep(time.Minute)
		w.see(func() {
			if len(w.topics.hold) != 0 {
				t.Errorf("%d were put on hold for want of a faster process", len(w.topics.hold))
			}
		})
	})
}

// No lane stands out among those that hang alike, and no record of theirs is read
// that would show that they have come to be too long.
func TestEndpointsThatHangAlikeMakeRoomForOthersBeforeTheirTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hanging = 20
		w := newWorld(t, Config{QueuedBytes: 10 * hanging * itemOverhead})
		w.answers(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/well" {
				return status(200), nil
			}
			return hang(r)
		})
		w.endpoint("well")
		for i := range hanging {
			w.endpoint("hangs" + strconv.Itoa(i))
		}
		before := time.Now()
		for range 50 {
			for i := range hanging {
				w.send("hangs"+strconv.Itoa(i), 1)
			}
		}
		w.send("well", 1)
		if took := time.Since(before); took > 10*time.Second {
			t.Errorf("the one that is well was read after %s", took)
		}
		w.see(func() {
			if len(w.bodies("well")) != 1 {
				t.Error("the one that is well was not sent to")
			}
		})
	})
}

func TestTheLongestLaneMakesRoomForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{PartitionOffsets: 10})
		w.endpoint("long", one)
		for _, id := range []string{"a", "b", "c", "d"} {
			w.endpoint(id)
		}
		w.answers(func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return status(200), nil
		})
		before := time.Now()
		w.send("long", 30)
		for _, id := range []string{"a", "b", "c", "d"} {
			w.send(id, 1)
		}
		if took := time.Since(before); took > time.Second {
			t.Errorf("the others were read after %s", took)
		}
		time.Sleep(time.Minute)
		w.see(func() {
			if len(w.topics.hold) == 0 || len(w.posts) != 34 {
				t.Errorf("%d on hold, %d POSTs", len(w.topics.hold), len(w.posts))
			}
		})
	})
}
