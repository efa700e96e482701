package attempts

import (
	"fmt"
	"time"
)

// Breaker is a line among those of attempts, in the same columns: an endpoint's breaker
// opened until a time, or closed (zero).
func (s Style) Breaker(at time.Time, endpointID string, until time.Time) string {
	what, color := "closed", green
	if !until.IsZero() {
		what, color = "open, next try at "+s.shortClock(until), yellow
	}
	if !s.isNarrow() {
		return s.clock(at) + "  " + s.paint(color, fmt.Sprintf("%-11s", "breaker")) + fmt.Sprintf(" %-12s ", text(endpointID, 64)) + s.paint(color, what)
	}
	about := fmt.Sprintf("%-39s%-12s ", s.shortClock(at)+"  breaker", text(endpointID, 64))
	return cut(about, s.Width) + s.paint(color, cut(what, max(0, s.Width-width(about))))
}
