package dispatcher

import "time"

// pace is the concurrency that an endpoint has earned. It starts at one request,
// doubles a round until the first failure and grows by one a round after it; a
// failure halves it. While the last finished attempt failed (or none has finished)
// the lane is unproven and has one request in flight whatever it had earned, so an
// endpoint that hangs costs one slot.
type pace struct {
	earned float64 // 0: nothing yet, counts as 1
	steady bool    // a failure has been seen: grow by one a round
	proven bool
	usual  time.Duration // moving average of what successful attempts take
	least  time.Duration // about what they take at the least, of late: more of it is the endpoint's part than of usual
}

func (p *pace) limit(most int) int {
	if !p.proven {
		return 1
	}
	return max(1, min(int(p.earned), most))
}

func (p *pace) succeeded(took time.Duration, most int) {
	p.proven = true
	switch {
	case p.earned < 1:
		p.earned = 2
	case p.steady:
		p.earned += 1 / p.earned
	default:
		p.earned++ // once for each success of a round: the round doubles
	}
	p.earned = min(p.earned, float64(most))
	if p.usual == 0 {
		p.usual, p.least = took, took
		return
	}
	p.usual += (took - p.usual) / 8
	p.least = min(took, p.least+(took-p.least)/64)
}

func (p *pace) failed() {
	p.proven, p.steady = false, true
	p.earned = max(1, p.earned/2)
}

// throttled is a 429: the endpoint is up, and wants less.
func (p *pace) throttled() {
	p.steady = true
	p.earned = max(1, p.earned/2)
}

// slow is how old an open attempt is when it stands out: four times the usual
// time, and no less than 100 ms.
func (p *pace) slow() time.Duration { return max(4*p.usual, 100*time.Millisecond) }
