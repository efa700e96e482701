package dispatcher

import "time"

// meter is the rate of finished attempts, a second, over the last second or so.
type meter struct {
	rate  float64
	n     int
	since time.Time
}

const meterWindow = 250 * time.Millisecond

func (m *meter) count(now time.Time) {
	m.n++
	if m.since.IsZero() {
		m.since = now
	}
	if took := now.Sub(m.since); took >= meterWindow {
		m.rate += (float64(m.n)/took.Seconds() - m.rate) / 2
		m.n, m.since = 0, now
	}
}
