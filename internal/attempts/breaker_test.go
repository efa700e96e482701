package attempts

import (
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestABreakersLineHasTheColumnsOfAttempts(t *testing.T) {
	for _, c := range []struct {
		style Style
		until time.Time
		want  string
	}{
		{Style{}, noon.Add(30 * time.Second), "12:00:00.000  breaker     dead         open, next try at 12:00:30"},
		{Style{}, time.Time{}, "12:00:00.000  breaker     dead         closed"},
		{Style{Width: 80}, noon.Add(30 * time.Second), "12:00:00  breaker                      dead         open, next try at 12:00:30"},
		{Style{Width: 60}, noon.Add(30 * time.Second), "12:00:00  breaker                      dead         open, n…"},
	} {
		c.style.Now, c.style.Short = noon, true
		if got := c.style.Breaker(noon, "dead", c.until); got != c.want {
			t.Errorf("%d columns:\n%q, want\n%q", c.style.Width, got, c.want)
		}
		attempt := c.style.Line(&schemas.Attempt{Outcome: schemas.OutcomeRetry, EndpointID: "dead", Number: 1, Started: noon})
		if strings.Index(attempt, "dead") != strings.Index(c.want, "dead") {
			t.Errorf("an attempt is %q", attempt)
		}
	}
}
