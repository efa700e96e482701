package dispatcher

import "time"

// meter is the rate of finished attempts, a second, over the last second or so.
type meter struct {
	rate  float64
	n     int
	since time.Time
}

const meterWindow = 250 * time.Millisecond

// count notes an attempt, and reports whether a window has ended with it.
func (m *meter) count(now time.Time) (ended bool) {
	m.n++
	if m.since.IsZero() {
		m.since = now
	}
	took := now.Sub(m.since)
	if took < meterWindow {
		return false
	}
	m.rate += (float64(m.n)/took.Seconds() - m.rate) / 2
	m.n, m.since = 0, now
	return true
}
