package attempts

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Style says how attempts are written for people.
type Style struct {
	Color bool
	Now   time.Time // times of another day are written with their date
	Short bool      // without the delivery id and what the answer said
	Width int       // of the terminal; 0: it is none, or of any width
}

const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	dim    = "\x1b[2m"
	reset  = "\x1b[0m"
)

// Line is one attempt on one line, on a narrow terminal on two: when, how it ended, for whom, what, the answer,
// how long it took, and the next try or the reason why there is none. Everything
// in it that came from outside is free of control characters.
func (s Style) Line(a *schemas.Attempt) string {
	if s.isNarrow() {
		return s.narrow(a)
	}
	var b strings.Builder
	b.WriteString(s.clock(a.Started))
	word, color := verdict(a)
	b.WriteString("  " + s.paint(color, fmt.Sprintf("%-11s", word)))
	// A made id is wider than its column: what is too much is taken from the type's.
	endpoint, kind := text(a.EndpointID, 64), text(a.Type, 48)
	fmt.Fprintf(&b, " %-12s %-*s ", endpoint, max(0, 22-max(0, len(endpoint)-12)), kind)
	fmt.Fprintf(&b, "%-9s %8s  %s", answer(a), milliseconds(a.Duration), attemptNumber(a))
	if next := s.next(a); next != "" {
		b.WriteString("  " + s.paint(color, next))
	}
	if detail := s.detail(a); detail != "" {
		b.WriteString("  " + detail)
	}
	if !s.Short {
		b.WriteString("  " + s.paint(dim, text(a.DeliveryID, 400)))
	}
	return b.String()
}

func (s Style) paint(color, t string) string {
	if !s.Color || color == "" {
		return t
	}
	return color + t + reset
}

func (s Style) clock(t time.Time) string {
	t = t.In(s.Now.Location())
	if y, m, d := s.Now.Date(); t != time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), t.Location()) {
		return t.Format("2006-01-02 15:04:05.000Z07:00")
	}
	return t.Format("15:04:05.000")
}

func verdict(a *schemas.Attempt) (word, color string) {
	switch a.Outcome {
	case schemas.OutcomeDelivered:
		return "delivered", green
	case schemas.OutcomeRetry:
		return "failed", yellow
	case schemas.OutcomeDead:
		return "dead", red
	}
	return text(string(a.Outcome), 16), dim
}

// answer is the HTTP status, or the class of the error.
func answer(a *schemas.Attempt) string {
	switch {
	case a.ErrorClass != "":
		return text(string(a.ErrorClass), 24)
	case a.Status != 0:
		return strconv.Itoa(a.Status)
	}
	return "-"
}

func attemptNumber(a *schemas.Attempt) string {
	if a.Number == 0 {
		return "no attempt"
	}
	t := "attempt " + strconv.Itoa(a.Number)
	if a.Generation > 0 {
		t += ", life " + strconv.Itoa(a.Generation+1)
	}
	return t
}

// next is what comes after this attempt.
func (s Style) next(a *schemas.Attempt) string {
	switch {
	case a.Outcome == schemas.OutcomeDead:
		return reasonText(a.Reason)
	case a.Outcome == schemas.OutcomeRetry && !a.NextTry.IsZero():
		if a.NextTry.After(s.Now) {
			return "next try at " + s.clock(a.NextTry)[:len(s.clock(a.NextTry))-len(".000")] + ", in " + s.until(a.NextTry)
		}
		return "next try was due at " + s.clock(a.NextTry)
	}
	return ""
}

// until is how long it is from now to then by the clock as it is shown, which leaves out
// parts of a second.
func (s Style) until(then time.Time) string {
	if wait := then.Truncate(time.Second).Sub(s.Now.Truncate(time.Second)); wait > 0 {
		return wait.String()
	}
	return "less than 1s"
}

var reasons = map[schemas.Reason]string{
	schemas.ReasonExhausted:        "its schedule has ended",
	schemas.ReasonExpired:          "too old to be tried again",
	schemas.ReasonRejected:         "the receiver's answer is final",
	schemas.ReasonGone:             "the receiver answered 410, the endpoint is disabled",
	schemas.ReasonBlockedAddress:   "no address of the host is allowed",
	schemas.ReasonEndpointDisabled: "the endpoint is disabled",
	schemas.ReasonEndpointDeleted:  "the endpoint is deleted",
	schemas.ReasonEndpointUnknown:  "no endpoint has this id",
	schemas.ReasonMalformed:        "the record cannot be read",
	schemas.ReasonTooLarge:         "too large for the broker with Milena's headers",
}

func reasonText(r schemas.Reason) string {
	if t := reasons[r]; t != "" {
		return string(r) + ": " + t
	}
	return text(string(r), 48)
}

// detail is the error, or the beginning of the answer's body.
func (s Style) detail(a *schemas.Attempt) string {
	switch {
	case a.Outcome == schemas.OutcomeDelivered:
		return ""
	case a.Error != "":
		return text(a.Error, 160)
	case a.ResponseBody != "" && !s.Short:
		return strconv.Quote(text(strings.TrimSpace(a.ResponseBody), 100))
	}
	return ""
}

func milliseconds(ms float64) string {
	switch {
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", math.Round(ms))
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// text makes what came from outside fit for one line of a terminal.
func text(s string, limit int) string { return schemas.CleanText(s, limit) }
