package registry

import (
	"fmt"
	"net/url"
	"time"

	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
)

// Bound makes of an endpoint's record what may be worked with, where something else
// than Milena wrote it and it says what registration refuses: a limit beyond its bound
// is the bound, one that means nothing is the default. What has neither stops the
// endpoint: a state that is none is disabled, a rate below nothing sends nothing, and
// of a URL that cannot be read the attempts say so. maxAge is the installation's.
// It says what was refused and what counts in its place; nothing for what Milena wrote.
func Bound(ep *Endpoint, maxAge time.Duration) []string {
	var refused []string
	put := func(err error, counts string) {
		refused = append(refused, fmt.Sprintf("%v; %s", err, counts))
	}
	switch ep.State {
	case schemas.StateDeleted:
		return nil
	case schemas.StateEnabled, schemas.StateDisabled:
	default:
		err := &ValidationError{"state", string(ep.State), "use enabled or disabled"}
		ep.State, ep.Reason = schemas.StateDisabled, err.Error()
		put(err, "nothing is sent to it")
	}
	if ep.Version < 1 {
		put(&ValidationError{"version", fmt.Sprint(ep.Version), "count from 1, one more a change"}, "1 counts")
		ep.Version = 1
	}
	if u, err := url.Parse(ep.URL); err != nil || u.Host == "" {
		put(&ValidationError{"url", withoutPassword(ep.URL), "use one such as https://example.com/hook"}, "its attempts fail")
	}
	if err := checkMaxInFlight(ep); err != nil {
		ep.MaxInFlight = within(ep.MaxInFlight, maxInFlight)
		put(err, orDefault(ep.MaxInFlight))
	}
	if err := checkTimeout(ep); err != nil {
		ep.Timeout = within(ep.Timeout, schemas.Duration(MaxTimeout))
		put(err, orDefault(ep.Timeout))
	}
	if checkRateLimit(ep) != nil {
		r := *ep.RateLimit
		if err := checkRate(&r); err != nil {
			r.Rate = within(r.Rate, maxRate)
			put(err, fmt.Sprintf("it gets %g a second", r.Rate))
		}
		if err := checkBurst(&r); err != nil {
			r.Burst = within(r.Burst, maxRate)
			put(err, orDefault(r.Burst))
		}
		ep.RateLimit = &r
	}
	if err := checkMaxAge(ep, maxAge); err != nil {
		ep.Retry.MaxAge = within(ep.Retry.MaxAge, schemas.Duration(maxAge))
		put(err, orDefault(ep.Retry.MaxAge))
	}
	if r := ep.Retry; r.Preset != "" || r.Schedule != nil || r.FinalStatuses != nil || r.MaxAge != 0 {
		if _, err := retrytopics.Compile(r); err != nil {
			ep.Retry = schemas.Retry{}
			put(err, "the default counts")
		}
	}
	return refused
}

// within is v between nothing, which is the default, and most.
func within[N int | float64 | schemas.Duration](v, most N) N { return max(0, min(v, most)) }

func orDefault[N int | schemas.Duration](v N) string {
	if v == 0 {
		return "the default counts"
	}
	return fmt.Sprint(v) + " counts"
}
