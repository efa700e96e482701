package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/attempts"
	"github.com/milena-project/milena/internal/health"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/lag"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

func (p *program) endpointExplainCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "explain ID", Args: oneArg("ID"),
		Short: "Say why nothing, or little, is sent to an endpoint now",
		Long: `Say why nothing, or little, is sent to an endpoint now: its configuration, what the owner of its
partition knows of its trouble (from Kafka, also when every process is dead), who that owner is, how far
behind the partition is, and its last five attempts. What happens in the owner at this moment is at /debug/lanes/ID of that process.`,
		Example: "  milena endpoint explain shop-42"}
	return p.endpointVerb(cmd, func(e *endpointRun, args []string) error { return e.explain(args[0]) })
}

// explained is what `endpoint explain --json` prints.
type explained struct {
	Endpoint  endpointView       `json:"endpoint"`
	Why       []string           `json:"why"`
	Partition int32              `json:"partition"`
	Owner     *kafka.GroupMember `json:"owner"` // null: none
	Process   string             `json:"process,omitempty"`
	Lag       *lag.Partition     `json:"lag"`    // of its partition of deliveries
	Health    *schemas.Health    `json:"health"` // null: no trouble is known
	Attempts  []schemas.Attempt  `json:"attempts"`
}

// lastShown is how many attempts explain shows.
const lastShown = 5

func (e *endpointRun) explain(id string) error {
	var ep *schemas.Endpoint
	err := e.with(false, func(ctx context.Context, a *registry.Admin) (err error) {
		ep, err = a.Get(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	s, err := e.open()
	if err != nil {
		return err
	}
	out := explained{Endpoint: view(ep)}
	keys, err := ring(s.Loaded)
	if err != nil {
		return err
	}
	var sealed error
	if keys != nil {
		sealed = keys.Opens(ep)
	}
	c := health.Case{Endpoint: ep, Sealed: sealed, Refused: registry.Bound(ep, s.Retry.MaxAge), Now: time.Now(), Clock: e.clock()}
	err = s.within(e.cmd.Context(), func(ctx context.Context) error { return s.learn(ctx, &out, &c) })
	if err != nil {
		return err
	}
	now := health.Of(ep, c.Health, c.Now)
	out.Endpoint.Now = &now
	out.Why, out.Health, out.Attempts = c.Explain(), c.Health, c.Last
	if e.json {
		return e.writeJSON(out)
	}
	return e.showExplained(&out)
}

// clock writes the times in sentences; nil with --json, where all times are in UTC.
func (e *endpointRun) clock() func(time.Time) string {
	if e.json {
		return nil
	}
	return clock
}

// learn asks Kafka for what is known of one endpoint.
func (s *session) learn(ctx context.Context, out *explained, c *health.Case) error {
	id, names := c.Endpoint.ID, schemas.Names{Prefix: s.Prefix}
	r, err := kafka.NewReader(s.kafka, kafka.WithRetryFor(s.timeout))
	if err != nil {
		return err
	}
	defer r.Close()
	var trouble health.Topic
	if err := trouble.Read(ctx, r, names.Health(), id); err != nil {
		return err
	}
	out.Partition, out.Process = trouble.Owner(id)
	c.Health = trouble.Of(id)
	look, err := lag.Open(s.kafka, nil, s.timeout)
	if err != nil {
		return err
	}
	defer look.Close()
	if out.Lag, out.Owner, err = look.Deliveries(ctx, out.Partition, c.Now); err != nil {
		return err
	}
	c.Owned, c.Unclaimed, c.Claimer, c.Behind = out.Owner != nil, !trouble.Claimed(id), out.Process, out.Lag.Behind(c.Now)
	log, err := attempts.Open(s.kafka, s.timeout)
	if err != nil {
		return err
	}
	defer log.Close()
	end, err := log.End(ctx)
	if err != nil {
		return err
	}
	c.Last, _, err = log.Last(ctx, attempts.Filter{Endpoint: id}, end, lastShown)
	return err
}

func (e *endpointRun) showExplained(x *explained) error {
	e.printf("endpoint %s  %s\n", x.Endpoint.ID, safe(x.Endpoint.URL))
	for _, why := range x.Why {
		e.printf("  %s\n", safe(why))
	}
	owner := "owned by nobody"
	if x.Owner != nil {
		owner = "owned by " + safe(x.Owner.ClientID+" at "+strings.TrimPrefix(x.Owner.Host, "/"))
		if x.Process != "" {
			owner += ", claimed by " + safe(x.Process)
		}
	}
	e.printf("partition %d, %s\n", x.Partition, owner)
	if len(x.Attempts) == 0 {
		e.printf("no attempts are in the log\n")
		return nil
	}
	e.printf("last attempts:\n")
	for i := range x.Attempts {
		if err := e.writeAttempt(&x.Attempts[i], "  "); err != nil {
			return err
		}
	}
	return nil
}
