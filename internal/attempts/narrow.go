package attempts

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/milena-project/milena/schemas"
)

// The width from which on a terminal has room for a whole line, with and without the
// delivery id and what the answer said.
const (
	roomy      = 200
	roomyShort = 120
)

func (s Style) isNarrow() bool {
	return s.Width > 0 && (s.Width < roomyShort || !s.Short && s.Width < roomy)
}

// narrow is Line for a terminal: no row is wider than Width. The type, which is last,
// makes room for what comes next; the delivery id and what the answer said get a row of
// their own, from which an id can be copied.
func (s Style) narrow(a *schemas.Attempt) string {
	word, color := verdict(a)
	said := word
	if ans := answer(a); ans != "-" {
		said += " " + ans
	}
	number, took := "-", "-"
	if a.Number > 0 {
		number = "#" + strconv.Itoa(a.Number)
	}
	if a.Duration > 0 { // else nothing was sent
		took = milliseconds(a.Duration)
	}
	start := s.shortClock(a.Started) + "  "
	about := fmt.Sprintf("  %7s  %-3s %-12s ", took, number, text(a.EndpointID, 64))
	next := s.shortNext(a)
	if next != "" {
		next = ", " + next
	}
	said = fmt.Sprintf("%-14s", said)
	kind := cut(text(a.Type, 48), max(0, s.Width-width(start+said+about+next)))
	left := s.Width
	var b strings.Builder
	for _, part := range []struct{ color, text string }{{"", start}, {color, said}, {"", about + kind}, {color, next}} {
		part.text = cut(part.text, left)
		left -= width(part.text)
		b.WriteString(s.paint(part.color, part.text))
	}
	line := strings.TrimRight(b.String(), " ")
	if s.Short {
		return line
	}
	return line + "\n" + cut(strings.Repeat(" ", 10)+s.below(a), s.Width)
}

// below is what a row of its own has.
func (s Style) below(a *schemas.Attempt) string {
	id := text(a.DeliveryID, 400)
	if detail := s.detail(a); detail != "" {
		return id + "  " + detail
	}
	return id
}

// shortClock is a time of today, or its day.
func (s Style) shortClock(t time.Time) string {
	t = t.In(s.Now.Location())
	if y, m, d := s.Now.Date(); t.Year() != y || t.Month() != m || t.Day() != d {
		return t.Format("2006-01-02 15:04:05Z07:00")
	}
	return t.Format(time.TimeOnly)
}

// shortNext is next in a few words.
func (s Style) shortNext(a *schemas.Attempt) string {
	var parts []string
	if a.Generation > 0 {
		parts = append(parts, "life "+strconv.Itoa(a.Generation+1))
	}
	switch {
	case a.Outcome == schemas.OutcomeDead:
		parts = append(parts, text(string(a.Reason), 24))
	case a.Outcome == schemas.OutcomeRetry && a.NextTry.After(s.Now):
		parts = append(parts, "next in "+shortWait(a.NextTry.Sub(s.Now)))
	case a.Outcome == schemas.OutcomeRetry && !a.NextTry.IsZero():
		parts = append(parts, "next due "+s.shortClock(a.NextTry))
	}
	return strings.Join(parts, ", ")
}

// shortWait is a wait by its two largest units.
func shortWait(d time.Duration) string {
	switch {
	case d >= time.Hour:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return d.Round(time.Second).String()
}

func width(s string) int { return utf8.RuneCountInString(s) }

// cut shortens a text to a width, and shows that it did.
func cut(s string, most int) string {
	if width(s) <= most {
		return s
	}
	if most <= 1 {
		return ""
	}
	return string([]rune(s)[:most-1]) + "…"
}
