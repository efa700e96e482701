package dispatcher

import (
	"net/http"
	"net/url"
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
	Signer         Signer
	Schedule       Schedule
	MaxInFlight    int           // default 10
	Timeout        time.Duration // of a whole attempt, default 15 s
	RateLimit      *schemas.RateLimit
	Header         http.Header // its own headers and authorization
	ForwardHeaders map[string]bool
	NoCEHeaders    bool
}

// DefaultEndpointMaxInFlight is the concurrency limit of an endpoint that says none.
const DefaultEndpointMaxInFlight = 10

// DefaultTimeout is the total deadline of an attempt for an endpoint that says none.
const DefaultTimeout = 15 * time.Second

// MaxTimeout is the longest total deadline that may be registered.
const MaxTimeout = 60 * time.Second

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

func (e *Endpoint) version() int64 {
	if e == nil {
		return 0
	}
	return e.Version
}
