package dispatcher

import (
	"time"

	"github.com/milena-project/milena/schemas"
)

// Config bounds a Dispatcher. The zero value of a field means its default.
type Config struct {
	// MaxInFlight is how many POSTs the process has open at once. Default 4096.
	MaxInFlight int
	// LaneTime bounds a lane's queue: what would not start within it goes to hold. Default 5 s.
	LaneTime time.Duration
	// QueuedBytes is the budget of payload bytes that wait in all lanes together. Default 512 MiB.
	QueuedBytes int64
	// PartitionOffsets caps the offsets of a partition that are read and not settled. Default 20,000.
	PartitionOffsets int
	// Unsettled caps the attempts of a partition that were answered and whose
	// writes are not acknowledged yet. Default 1,000.
	Unsettled int
	// DuplicateEntries and DuplicateAge bound the memory of deliveries that were
	// queued, sent or buried. Defaults 1,000,000 and 15 min.
	DuplicateEntries int
	DuplicateAge     time.Duration
	// UnknownFor is how long a delivery for an endpoint that is not registered
	// is parked again before it dies. Default 10 min.
	UnknownFor time.Duration
	// MaxAge is the oldest a delivery gets, from milena-enqueued, where its
	// endpoint says nothing else. Default 96 h.
	MaxAge time.Duration
	// IdleLanes is how many lanes without work are remembered, with their proof
	// and their concurrency. Default 32,768.
	IdleLanes int
	// TenantShare is the part of MaxInFlight that one tenant may have open, above 0
	// and at most 1. Default 1. Endpoints without a tenant are not bounded by it.
	TenantShare float64
	// TenantRate is how many POSTs a second one tenant gets from this process, with a
	// burst of one second's worth. Default 0: no bound. Not for endpoints without a tenant.
	TenantRate float64
	// UserAgent is sent with every request. Default Milena.
	UserAgent string
}

// WithDefaults returns the config with its zero fields set.
func (c Config) WithDefaults() Config {
	setDefault(&c.MaxInFlight, 4096)
	setDefault(&c.LaneTime, 5*time.Second)
	setDefault(&c.QueuedBytes, 512<<20)
	setDefault(&c.PartitionOffsets, 20_000)
	setDefault(&c.Unsettled, 1_000)
	setDefault(&c.DuplicateEntries, 1_000_000)
	setDefault(&c.DuplicateAge, 15*time.Minute)
	setDefault(&c.UnknownFor, 10*time.Minute)
	setDefault(&c.MaxAge, schemas.DefaultMaxAge)
	setDefault(&c.IdleLanes, 32_768)
	setDefault(&c.TenantShare, 1)
	setDefault(&c.UserAgent, "Milena")
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
