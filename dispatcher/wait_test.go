package dispatcher

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func TestARateOfOnceInAgesMakesAWaitThatIsNotOver(t *testing.T) {
	now := time.Now()
	for _, limit := range []rate.Limit{1e-3, 1e-6, 1e-12, 1e-300} {
		s := newLanes(Config{}.WithDefaults(), nil, nil)
		l := &lane{bucket: rate.NewLimiter(limit, 1)}
		l.bucket.AllowN(now, 1)
		if wait := s.wait(l, 1000, now); wait < time.Hour {
			t.Errorf("at %g a second, a thousand would start within %s", float64(limit), wait)
		}
	}
}
