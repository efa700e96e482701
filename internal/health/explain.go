package health

import (
	"fmt"
	"net/http"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Case is what is known of an endpoint when somebody asks why nothing, or little, is
// sent to it.
type Case struct {
	Endpoint  *schemas.Endpoint
	Refused   []string          // what its record says that counts otherwise, as registry.Bound tells it
	Sealed    error             // why the key ring at hand does not open its secrets; nil: it does, or there is none
	Health    *schemas.Health   // nil: the owner of its partition knows of no trouble
	Owned     bool              // a process of the dispatcher's group owns its partition
	Unclaimed bool              // nobody has claimed it in health
	Claimer   string            // the process that claimed it last; empty: unknown
	Behind    string            // how far behind its partition is, as package lag says it; empty: it is not
	Last      []schemas.Attempt // of its last attempts, the newest last
	Now       time.Time
	Clock     func(time.Time) string // writes a time; nil: in UTC by RFC 3339
}

// Explain says in sentences what stands in the way, the most decisive first; one
// sentence says that nothing does.
func (c *Case) Explain() []string {
	var why []string
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	ep := c.Endpoint
	switch ep.State {
	case schemas.StateDeleted:
		say("it was deleted %s: what comes for it ends as dead letters endpoint_deleted", c.at(ep.UpdatedAt))
		return why
	case schemas.StateDisabled:
		say("it is disabled by its configuration since %s%s: what comes for it ends as dead letters endpoint_disabled; milena endpoint enable %s, then milena dlq replay --endpoint %s --reason endpoint_disabled",
			c.at(ep.UpdatedAt), reason(ep.Reason), ep.ID, ep.ID)
	}
	for _, refused := range c.Refused {
		say("its record was not written by Milena and says what registration refuses: %s", refused)
	}
	if !c.Owned {
		say("no process owns its partition: is a dispatcher running?")
	}
	c.partition(say)
	c.trouble(say)
	if r := ep.RateLimit; r != nil {
		say("it gets at most %g a second, burst %d", r.Rate, r.Size())
	}
	if c.Sealed != nil {
		say("by the key ring of this command, nothing can be signed for it: %v", c.Sealed)
	} else if n := len(c.Last); n > 0 {
		if hint := Hint(&c.Last[n-1]); hint != "" {
			say("%s", hint)
		}
	}
	if len(why) == 0 {
		say("nothing stands in the way: what comes for it is sent at once")
	}
	return why
}

// partition explains what holds for all that are in its partition.
func (c *Case) partition(say func(string, ...any)) {
	if c.Owned && c.Unclaimed {
		say("the owner of its partition has not claimed it yet, and sends nothing before it has")
	}
	if c.Behind == "" {
		return
	}
	text := "its partition is " + c.Behind
	if c.Owned && c.Claimer != "" {
		text += "; " + c.Claimer + " claimed it last: if that process is gone, the owner has not claimed it yet, and sends nothing before it has"
	}
	say("%s", text)
}

// trouble explains the owner's record.
func (c *Case) trouble(say func(string, ...any)) {
	h := c.Health
	if h == nil {
		return
	}
	if h.Held > 0 || h.Next != nil {
		say("on hold: %d as of %s; what is on hold is sent in its order, before what comes after it", h.Held, c.at(time.UnixMilli(h.Written)))
	}
	if over(c.Endpoint, h) && (h.Since != nil || h.Paused != nil) {
		say("its configuration is newer than its trouble: its breaker closes and its pause ends within seconds")
		return
	}
	if p := h.Paused; paused(c.Endpoint, h, c.Now) {
		say("paused until %s: it answered %d with Retry-After; milena endpoint enable %s ends it", c.at(p.Until), p.Status, c.Endpoint.ID)
	}
	e := episode(c.Endpoint, h)
	if e == nil {
		return
	}
	switch {
	case switchedOff(c.Endpoint, e):
		say("switched off %s: %s; milena endpoint enable %s", c.at(e.DisabledAt), e.DisabledReason, c.Endpoint.ID)
	case e.OpenUntil.After(c.Now):
		say("its breaker is open until %s, opening %d in a row; then one delivery is sent as a probe", c.at(e.OpenUntil), e.BreakerStep)
	case e.BreakerStep > 0 && !e.OpenUntil.IsZero():
		say("its breaker was open until %s: the next delivery is a probe", c.at(e.OpenUntil))
	}
	if e.Attempts > 0 {
		attempts := "attempts"
		if e.Attempts == 1 {
			attempts = "attempt"
		}
		say("failing since %s, %d %s; the last: %s", c.at(e.FailingSince), e.Attempts, attempts, failure(e))
	}
}

// Hint says what an attempt's answer probably means; empty: it explains itself.
func Hint(a *schemas.Attempt) string {
	if a.ErrorClass == schemas.ClassInternal {
		return "no request could be made: " + a.Error
	}
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("rejected by the receiver: %d, the signature is probably not accepted; milena signature verify tells why", a.Status)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Sprintf("rejected by the receiver: %d, the path of the URL is probably wrong", a.Status)
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return fmt.Sprintf("the receiver answers %d; redirects are not followed, register the URL that it leads to", a.Status)
	}
	return ""
}

func failure(e *schemas.Episode) string {
	if e.LastClass != "" {
		return string(e.LastClass) + reason(e.LastError)
	}
	return fmt.Sprintf("status %d", e.LastStatus)
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func (c *Case) at(t time.Time) string {
	if c.Clock != nil {
		return c.Clock(t)
	}
	return t.UTC().Format(time.RFC3339)
}
