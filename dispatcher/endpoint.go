package dispatcher

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Endpoint is a registered endpoint made ready for sending. It is immutable: a
// change of its configuration is a new Endpoint.
type Endpoint struct {
	ID      string
	Tenant  string
	State   schemas.EndpointState
	Version int64

	URL            *url.URL
	LogURL         string // URL without its query, which may hold a secret
	Owner          string // contact for notices
	Signer         Signer
	Schedule       Schedule
	MaxAge         time.Duration // of a delivery that is read from hold; 0: Config.MaxAge
	MaxInFlight    int           // default 10
	Timeout        time.Duration // of a whole attempt, default 15 s
	RateLimit      *schemas.RateLimit
	Header         http.Header // its own headers and authorization
	ForwardHeaders map[string]bool
	NoCEHeaders    bool
	Transport      Transport // the way to it, where that is its own; nil: the dispatcher's
	Hidden         []string  // its secrets, which a receiver may repeat in an answer: the delivery log does not keep them
}

// DefaultEndpointMaxInFlight is the concurrency limit of an endpoint that says none.
const DefaultEndpointMaxInFlight = 10

// DefaultTimeout is the total deadline of an attempt for an endpoint that says none.
const DefaultTimeout = 15 * time.Second

// hide takes the endpoint's secrets out of what its receiver answered: there are
// error pages that show the request with its headers, or the receiver's settings.
func (e *Endpoint) hide(answer string) string {
	for _, secret := range e.Hidden {
		if len(secret) >= leastHidden {
			answer = strings.ReplaceAll(answer, secret, "(hidden)")
		}
	}
	return answer
}

// leastHidden is the length below which a secret would hide half of an answer.
const leastHidden = 4

func (e *Endpoint) maxInFlight() int {
	if e == nil || e.MaxInFlight <= 0 {
		return DefaultEndpointMaxInFlight
	}
	return e.MaxInFlight
}

func (e *Endpoint) timeout() time.Duration {
	if e.Timeout <= 0 {
		return DefaultTimeout
	}
	return e.Timeout
}

// maxAge is the oldest that a delivery to it may be, where others' may be of byDefault.
func (e *Endpoint) maxAge(byDefault time.Duration) time.Duration {
	if e == nil || e.MaxAge <= 0 {
		return byDefault
	}
	return e.MaxAge
}

func (e *Endpoint) version() int64 {
	if e == nil {
		return 0
	}
	return e.Version
}
