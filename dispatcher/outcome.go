package dispatcher

import (
	"net/http"
	"strconv"
	"time"

	"github.com/milena-project/milena/schemas"
)

// result is what came back from one attempt, before anything is made of it.
type result struct {
	started    time.Time
	firstByte  time.Time // when it had a connection, a moment before its first byte left; zero: it never had one
	duration   time.Duration
	status     int
	class      schemas.ErrorClass // empty: an HTTP answer
	text       string
	retryAfter time.Duration // 0: none that counts

	headers   []schemas.Pair
	body      string
	truncated bool
}

func (r *result) delivered() bool { return r.class == "" && r.status >= 200 && r.status < 300 }

// verdict is what a result comes to.
type verdict struct {
	outcome schemas.Outcome
	reason  schemas.Reason // where dead
	disable bool           // the endpoint asked for no more (410)
}

// judge is the outcome table: nothing but the answer and the endpoint's final
// statuses decides, so that the retry policy can be read here in full.
func judge(final func(status int) bool, r *result) verdict {
	switch r.class {
	case "":
		return judgeStatus(final, r.status)
	case schemas.ClassBlockedAddress:
		// A refused address is not tried again: nothing but a change of the
		// endpoint makes it allowed, and then it is replayed.
		return verdict{outcome: schemas.OutcomeDead, reason: schemas.ReasonBlockedAddress}
	case schemas.ClassLocal, schemas.ClassProxy, schemas.ClassCancelled:
		// Our own fault: the endpoint saw nothing that it could be charged for.
		return verdict{outcome: schemas.OutcomeInterrupted}
	default:
		// dns, connect, tls, timeout, reset, protocol; and internal (a secret that
		// does not sign), which is no use to repeat at once but may be mended.
		return verdict{outcome: schemas.OutcomeRetry}
	}
}

func judgeStatus(final func(int) bool, status int) verdict {
	switch {
	case status >= 200 && status < 300:
		return verdict{outcome: schemas.OutcomeDelivered}
	case status == http.StatusGone:
		// Standard Webhooks: 410 asks the sender to disable the endpoint.
		return verdict{outcome: schemas.OutcomeDead, reason: schemas.ReasonGone, disable: true}
	case final(status):
		return verdict{outcome: schemas.OutcomeDead, reason: schemas.ReasonRejected}
	default:
		return verdict{outcome: schemas.OutcomeRetry}
	}
}

// parseRetryAfter reads the first Retry-After header (RFC 9110, section 10.2.3):
// delay-seconds or an HTTP date. Anything else, and a date that has passed, is 0.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	values := h["Retry-After"]
	if len(values) == 0 || values[0] == "" {
		return 0
	}
	v := values[0]
	if v[0] >= '0' && v[0] <= '9' {
		s, err := strconv.ParseUint(v, 10, 63)
		if err != nil {
			return 0
		}
		return time.Duration(min(s, uint64(schemas.MaxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil || !at.After(now) {
		return 0
	}
	return min(at.Sub(now), schemas.MaxRetryAfter)
}
