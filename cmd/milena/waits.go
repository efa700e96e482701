package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/milena-project/milena/dlq"
)

// waits tells how a wait goes: a line when something has changed, and now and then one
// that says since when nothing has.
type waits struct {
	say func(text string)

	was     string // what stood in the last line but for what is counted beside
	changed time.Time
	told    time.Time
}

const (
	stillEvery = time.Minute // that nothing has changed
	waitsShown = 5           // endpoints whose reason is said
)

// outcomes tells where deliveries stand, and why those of which endpoints stand still.
func (w *waits) outcomes(o *dlq.Outcomes, now time.Time) {
	a := o.All
	text := fmt.Sprintf("delivered %d, dead %d, retrying %d, not yet %d", a.Delivered, a.Dead, a.Retrying, a.Open)
	if a.Unknown > 0 {
		text += fmt.Sprintf(", unknown %d", a.Unknown)
	}
	why, whole := waitsText(o, now)
	w.tell(text+why, text, whole, now)
}

// tell writes text and the lines below it, if key is another than before.
func (w *waits) tell(key, text string, lines []string, now time.Time) {
	switch {
	case w.was == "": // at once
	case key != w.was && now.Sub(w.told) < lineEvery, key == w.was && now.Sub(w.told) < stillEvery:
		return
	case key == w.was:
		text = "nothing has changed since " + hour(w.changed, now) + ": " + text
	}
	if key != w.was {
		w.was, w.changed = key, now
	}
	w.told = now
	w.say(text)
	for _, line := range lines {
		w.say("  " + line)
	}
}

// waitsText is a line for each endpoint that is waited for, those with most first. key is
// what of it is worth a new line: not how many are on hold, which live traffic changes.
func waitsText(o *dlq.Outcomes, now time.Time) (key string, lines []string) {
	open := func(id string) int64 { return o.Endpoints[id].Retrying + o.Endpoints[id].Open }
	ids := slices.SortedFunc(slices.Values(sortedKeys(o.Waits)), func(a, b string) int {
		return cmp.Or(cmp.Compare(open(b), open(a)), cmp.Compare(a, b))
	})
	for i, id := range ids {
		if i == waitsShown {
			lines = append(lines, fmt.Sprintf("and %s more", counted(int64(len(ids)-i), "endpoint")))
			break
		}
		wait := o.Waits[id]
		line := dash(id) + ": " + waitText(o.Endpoints[id], &wait, now)
		key += "\n" + line
		if wait.Held > 0 {
			line += "; the endpoint has " + itoa(wait.Held) + " on hold"
		}
		lines = append(lines, line)
	}
	return key, lines
}

// waitText says what the deliveries of one endpoint wait for.
func waitText(c dlq.OutcomeCounts, wait *dlq.Wait, now time.Time) string {
	var parts []string
	if c.Retrying > 0 {
		next := "the next is due"
		if wait.NextTry.After(now) {
			next = "the next at " + hour(wait.NextTry, now)
		}
		parts = append(parts, fmt.Sprintf("%d will be tried again, %s", c.Retrying, next))
	}
	if c.Open > 0 {
		parts = append(parts, fmt.Sprintf("%d not yet tried", c.Open))
	}
	switch {
	case wait.Breaker == "open":
		parts = append(parts, "its breaker is open and "+probeText(wait.Until, now))
	case wait.Breaker == "paused":
		parts = append(parts, "its receiver asked for a pause until "+hour(wait.Until, now))
	case wait.Breaker == "failing":
		parts = append(parts, "its attempts have failed since "+hour(wait.Failing, now))
	case c.Open > 0:
		parts = append(parts, "milena lag shows what stands before them")
	}
	return strings.Join(parts, "; ")
}

// probeText says how an open breaker may close: not by the clock.
func probeText(until, now time.Time) string {
	if until.After(now) {
		return "lets one try through at " + hour(until, now)
	}
	return "its next try is due"
}

// hour is a time of today without its date.
func hour(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return clock(t)
}
