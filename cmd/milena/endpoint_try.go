package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/attempts"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/publish"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

// testEvent is the type of the event that `endpoint test` sends.
const testEvent = "webhook.test"

func (p *program) endpointTestCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "test ID", Args: oneArg("ID"),
		Short:   "Send a signed " + testEvent + " event by way of Kafka and wait for its first attempt",
		Long:    "Send a signed " + testEvent + " event by way of Kafka, as any other event goes, and wait for its first attempt.\nExit code 0: delivered; 1: not, or no attempt within --timeout (is milena serve running?).",
		Example: "  milena endpoint test shop-42"}
	return p.endpointVerb(cmd, func(e *endpointRun, args []string) error {
		if !schemas.ValidEndpointID(args[0]) {
			return usage("%q: ids are 1 to 64 of A-Z a-z 0-9 _ -", args[0])
		}
		// A mistyped id shall not become a dead letter.
		if err := e.with(false, func(ctx context.Context, a *registry.Admin) error {
			_, err := a.Get(ctx, args[0])
			return err
		}); err != nil {
			return err
		}
		s, err := e.open()
		if err != nil {
			return err
		}
		return e.try(s, args[0])
	})
}

func (e *endpointRun) try(s *session, id string) error {
	log, err := attempts.Open(s.kafka, s.timeout)
	if err != nil {
		return err
	}
	defer log.Close()
	w, err := kafka.NewWriter(s.kafka)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close(e.cmd.Context()) }()

	var end attempts.Position
	var sent []publish.Sent
	err = s.within(e.cmd.Context(), func(ctx context.Context) error {
		layout, err := s.layout(ctx, s.kafka.Names.Deliveries())
		if err != nil {
			return err
		}
		if end, err = log.End(ctx); err != nil {
			return err
		}
		pub := &publish.Publisher{Writer: w, Names: s.kafka.Names, Topic: layout}
		payload := fmt.Appendf(nil, `{"type":%q,"created_at":%q,"data":{"endpoint":%q}}`, testEvent, time.Now().UTC().Format(time.RFC3339), id)
		sent, err = pub.Send(ctx, schemas.Event{Type: testEvent, ContentType: "application/json"}, payload, id)
		return err
	})
	if err != nil {
		return err
	}
	return e.await(s, log, end, id, sent[0].DeliveryID)
}

var errSeen = errors.New("seen")

// await prints the first attempt of a delivery.
func (e *endpointRun) await(s *session, log *attempts.Log, end attempts.Position, id, delivery string) error {
	ctx, cancel := context.WithTimeout(e.cmd.Context(), s.timeout)
	defer cancel()
	var seen schemas.Attempt
	err := log.Follow(ctx, attempts.Filter{Delivery: delivery}, end, func(a schemas.Attempt) error {
		if a.Outcome == schemas.OutcomeInterrupted {
			return nil // another follows
		}
		seen = a
		return errSeen
	})
	switch {
	case err == nil:
		return fmt.Errorf("no attempt within %s (--timeout): is milena serve running? milena endpoint explain %s says what else it may wait for. It will be sent; see milena attempts --delivery %s", s.timeout, id, delivery)
	case !errors.Is(err, errSeen):
		return err
	}
	if err := e.showAttempt(&attemptsFlags{json: e.json}, &seen); err != nil {
		return err
	}
	if seen.Outcome != schemas.OutcomeDelivered {
		return &exit{code: exitFailed}
	}
	return nil
}
