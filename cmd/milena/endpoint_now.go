package main

import (
	"cmp"
	"context"
	"time"

	"github.com/milena-project/milena/internal/health"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

const nowHelp = `The state is what an endpoint is in now: that its owner disabled it (after a 410, or days
without success), paused it or opened its breaker counts beside what is registered. With --json that
is in "now", and "state" is the registered one. Where the health topic cannot be read the registered
states are shown, "now" is unknown, and stderr says why.`

// knownTrouble is what owners wrote of endpoints in trouble.
type knownTrouble struct {
	health.Topic

	unread error // why nothing is known but what is registered; nil: health was read
	at     time.Time
}

// trouble reads what owners wrote of endpoints, of all if none is named. What is
// registered can be shown without it.
func (e *endpointRun) trouble(ids ...string) (*knownTrouble, error) {
	s, err := e.open()
	if err != nil {
		return nil, err
	}
	k := &knownTrouble{at: time.Now()}
	topic := schemas.Names{Prefix: s.Prefix}.Health()
	err = s.within(e.cmd.Context(), func(ctx context.Context) error {
		r, err := kafka.NewReader(s.kafka, kafka.WithRetryFor(s.timeout))
		if err != nil {
			return err
		}
		defer r.Close()
		err = k.Read(ctx, r, topic, ids...)
		if kafka.IsDenied(err) { // of all rights that somebody lacks only this one is of interest
			k.unread, err = kafka.NameRight(err, "Read", "Topic", topic), nil
		}
		return err
	})
	if e.cmd.Context().Err() != nil { // whoever interrupts it does not want to see it
		return nil, err
	}
	k.unread = cmp.Or(k.unread, err)
	return k, nil
}

// say tells on stderr that only the registered states are known, if it is so.
func (k *knownTrouble) say(p *program) {
	if k.unread != nil {
		p.notef("milena: the states are the registered ones; whether an endpoint was disabled by a 410, is paused or has an open breaker is not known: %v", k.unread)
	}
}

// now is what an endpoint is in.
func (k *knownTrouble) now(ep *schemas.Endpoint) health.Status {
	if k.unread != nil {
		return health.Status{State: health.Unknown}
	}
	return health.Of(ep, k.Of(ep.ID), k.at)
}

// view shows an endpoint with what it is in.
func (k *knownTrouble) view(ep *schemas.Endpoint) endpointView {
	v, now := view(ep), k.now(ep)
	v.Now = &now
	return v
}

// text is what an endpoint is in, for people.
func (k *knownTrouble) text(ep *schemas.Endpoint) string {
	if k.unread != nil {
		return string(ep.State)
	}
	return nowText(k.now(ep), k.at)
}

// nowText says what an endpoint is in.
func nowText(s health.Status, now time.Time) string {
	switch s.State {
	case health.Disabled:
		if !s.Since.IsZero() {
			return "disabled since " + clock(s.Since) + ": " + s.Why
		}
	case health.Paused:
		return "paused until " + clock(s.Until)
	case health.Open:
		if !s.Until.After(now) {
			return "breaker open, next try is due"
		}
		return "breaker open, next try " + clock(s.Until)
	case health.Failing:
		return "failing since " + clock(s.Since)
	}
	return string(s.State)
}
