package retrytopics

import (
	"errors"
	"fmt"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// Writer writes records until they are acknowledged; *kafka.Writer is one. done is
// called once for every Write. Its error is kafka.ErrTooLarge, or kafka.ErrClosed
// when the process ends first; whatever else goes wrong is tried again.
type Writer interface {
	Write(m kafka.Message, done func(kafka.Written))
}

// DeadLetter takes a delivery that cannot wait or move on: an unreadable record of a
// tier (schemas.ReasonMalformed) or one that the broker finds too large
// (schemas.ReasonTooLarge); d.Error says more. acked is called once the dead letter
// is durable, and never if the process ends first.
type DeadLetter interface {
	DeadLetter(d *schemas.Delivery, reason schemas.Reason, acked func())
}

// DefaultTierPartitions is how many partitions each tier has if nothing else is said.
const DefaultTierPartitions = 3

// ParkerConfig configures a Parker. Writer and DeadLetter are required.
type ParkerConfig struct {
	Writer     Writer
	DeadLetter DeadLetter
	Names      schemas.Names    // default prefix: schemas.DefaultPrefix
	Tiers      Tiers            // default: schemas.DefaultTiers
	Partitions int32            // of each tier; default: DefaultTierPartitions
	Hooks      []Hook           // those that are a HookParked are called
	Now        func() time.Time // the wall clock; default: time.Now
}

// WithDefaults fills in what was left out.
func (c ParkerConfig) WithDefaults() ParkerConfig {
	if c.Names.Prefix == "" {
		c.Names.Prefix = schemas.DefaultPrefix
	}
	if c.Tiers == nil {
		c.Tiers = schemas.DefaultTiers()
	}
	if c.Partitions <= 0 {
		c.Partitions = DefaultTierPartitions
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Parker writes deliveries to the tier in which they wait. It is safe for concurrent use.
type Parker struct {
	cfg    ParkerConfig
	topics map[time.Duration]string // by tier: names are made once
	parked []HookParked
}

// NewParker makes a Parker. The error says what is missing or wrong in cfg.
func NewParker(cfg ParkerConfig) (*Parker, error) {
	cfg = cfg.WithDefaults()
	if cfg.Writer == nil || cfg.DeadLetter == nil {
		return nil, errors.New("retrytopics: a Parker needs a Writer and a DeadLetter")
	}
	tiers, err := NewTiers(cfg.Tiers...)
	if err != nil {
		return nil, err
	}
	cfg.Tiers = tiers
	p := &Parker{cfg: cfg, topics: map[time.Duration]string{}, parked: hooksOf[HookParked](cfg.Hooks)}
	for _, tier := range tiers {
		p.topics[tier] = cfg.Names.Retry(tier)
	}
	return p, nil
}

// Park writes d to the largest tier that is not longer than the time to
// d.NotBefore (zero: now) and calls acked when the record is durable. If the
// process ends first acked is never called, so that the record d came from is read
// again. d is not changed and must not be until acked is called.
func (p *Parker) Park(d *schemas.Delivery, acked func()) {
	p.park(d, func(err error) {
		if err == nil {
			acked()
		}
	})
}

// park is Park for one that must hear of the end too: done gets nil, or kafka.ErrClosed.
func (p *Parker) park(d *schemas.Delivery, done func(error)) {
	now := p.cfg.Now().Round(0)
	hop := *d
	hop.NotBefore = ceilMilli(d.NotBefore)
	if d.NotBefore.IsZero() {
		hop.NotBefore = ceilMilli(now)
	}
	tier := p.cfg.Tiers.Choose(hop.NotBefore.Sub(now))
	// A tier is not longer than what remains, so this is never beyond NotBefore.
	// Readers look at it and not at the broker's time of append: only the clocks
	// of Milena's own processes decide.
	hop.HopUntil = now.Add(tier)
	hop.Released, hop.Claim = time.Time{}, 0

	// Any partition of the tier would do. The hash of the endpoint spreads them
	// and keeps the order of one endpoint's records as far as a tier can.
	key := []byte(d.EndpointID)
	m := kafka.Message{
		Topic: p.topics[tier], Partition: kafka.Partition(key, p.cfg.Partitions),
		Key: key, Value: d.Payload, Headers: hop.Headers(),
	}
	p.cfg.Writer.Write(m, func(w kafka.Written) {
		switch {
		case w.Err == nil:
			for _, h := range p.parked {
				h.OnParked(tier)
			}
			done(nil)
		case errors.Is(w.Err, kafka.ErrTooLarge):
			buryTooLarge(p.cfg.DeadLetter, d, m.Topic, func() { done(nil) })
		default:
			done(w.Err)
		}
	})
}

func buryTooLarge(dead DeadLetter, d *schemas.Delivery, topic string, acked func()) {
	letter := *d
	letter.Error = fmt.Sprintf("%s refuses %d bytes of payload and its headers", topic, len(d.Payload))
	dead.DeadLetter(&letter, schemas.ReasonTooLarge, acked)
}
