package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/publish"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

// sendFlags are the flags of `milena send`.
type sendFlags struct {
	endpoint    string
	event       schemas.Event
	data        string
	count       int
	perSecond   float64
	canonical   bool
	json        bool
	timeout     time.Duration
	payload     []byte
	explicitID  bool
	contentType string
}

func (p *program) sendCommand() *cobra.Command {
	f := &sendFlags{}
	cmd := &cobra.Command{Use: "send (--endpoint ID | --type T) --data STRING|@FILE|-", Args: noArgs,
		Short: "Send an event to one endpoint, or to all that subscribe to its type",
		Long: `Send an event to one endpoint, or to every endpoint of the tenant that subscribes to its type.
The bytes of --data are what is signed and POSTed. Every record is acknowledged by all in-sync
replicas before its line is printed.`,
		Example: `  milena send --endpoint shop-42 --data '{"hello":"world"}'
  milena send --type order.created --tenant shop --subject order-7 --data @order.json
  echo '{"n":1}' | milena send --type load.test --data - --count 1000 --rate 100`}
	fs := cmd.Flags()
	fs.StringVar(&f.endpoint, "endpoint", "", "id of the endpoint that it is for")
	fs.StringVar(&f.event.Type, "type", "", "type of the event; without --endpoint it decides who gets it")
	fs.StringVar(&f.event.Tenant, "tenant", "", "tenant of the event")
	fs.StringVar(&f.event.Subject, "subject", "", "subject of the event")
	fs.StringVar(&f.data, "data", "", "the payload: text, @FILE, or - for standard input")
	fs.StringVar(&f.event.ID, "id", "", "id of the event, best made from the fact (default: one that nobody has); with --count -1, -2 … is added")
	fs.StringVar(&f.event.Source, "source", publish.Source, "source of the event")
	fs.StringVar(&f.contentType, "content-type", "application/json", "content type of the payload")
	mayBeEmpty(fs, "an empty payload", "data")
	fs.IntVar(&f.count, "count", 1, "how many events to send")
	fs.Float64Var(&f.perSecond, "rate", 0, "events a second; 0: as fast as it goes")
	fs.BoolVar(&f.canonical, "canonical", false, "write JSON canonically first (RFC 8785): sorted and compact")
	jsonFlag(cmd, &f.json)
	timeoutFlag(cmd, &f.timeout)
	settings(cmd)
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		if err := p.prepareSend(cmd, f); err != nil {
			return err
		}
		s, err := p.connect(cmd, f.timeout)
		if err != nil {
			return err
		}
		if f.endpoint != "" {
			s.needs = kafka.RoleProducer // it need not look at endpoints
		}
		return p.send(cmd.Context(), s, f)
	})
}

// prepareSend checks the flags and reads the payload.
func (p *program) prepareSend(cmd *cobra.Command, f *sendFlags) error {
	switch {
	case f.endpoint == "" && f.event.Type == "":
		return usage("say who gets it: --endpoint ID, or --type T for all that subscribe to it")
	case f.endpoint != "" && !schemas.ValidEndpointID(f.endpoint):
		return usage("--endpoint %q: ids are 1 to 64 of A-Z a-z 0-9 _ -", f.endpoint)
	case !cmd.Flags().Changed("data"):
		return usage("--data is missing: a text, @FILE, or - for standard input")
	case f.count < 1:
		return usage("--count %d: want at least 1", f.count)
	case f.perSecond < 0:
		return usage("--rate %g: want 0 or more", f.perSecond)
	}
	f.explicitID = f.event.ID != ""
	f.event.ContentType = f.contentType
	f.event.SpecVersion = schemas.DefaultSpecVersion
	if f.event.Type == "" {
		f.event.Type = schemas.DefaultEventType
	}
	var err error
	if f.payload, err = p.readData(f.data); err != nil {
		return usage("--data: %w", err)
	}
	if f.canonical {
		if f.payload, err = schemas.CanonicalJSON(f.payload); err != nil {
			return usage("--canonical: %w", err)
		}
	}
	return nil
}

func (p *program) send(ctx context.Context, s *session, f *sendFlags) error {
	endpoints := []string{f.endpoint}
	var layout kafka.Layout
	err := s.within(ctx, func(ctx context.Context) (err error) {
		if layout, err = s.layout(ctx, s.kafka.Names.Deliveries()); err != nil || f.endpoint != "" {
			return err
		}
		endpoints, err = s.subscribers(ctx, f.event.Tenant, f.event.Type)
		return err
	})
	if err != nil {
		return err
	}
	w, err := kafka.NewWriter(s.kafka)
	if err != nil {
		return err
	}
	pub := &publish.Publisher{Writer: w, Names: s.kafka.Names, Topic: layout}
	err = p.sendAll(ctx, s, f, pub, endpoints)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if closed := w.Close(closing); err == nil {
		err = closed // else what has no acknowledgement is reported already
	}
	if err == nil && f.endpoint != "" {
		p.warnUnknown(ctx, s, f.endpoint)
	}
	return err
}

// sendAll keeps up to sendWindow events on their way and prints each in turn.
func (p *program) sendAll(ctx context.Context, s *session, f *sendFlags, pub *publish.Publisher, endpoints []string) error {
	limit := rate.NewLimiter(rate.Inf, 1)
	if f.perSecond > 0 {
		limit = rate.NewLimiter(rate.Limit(f.perSecond), 1)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	window := make(chan struct{}, sendWindow)
	var wait sync.WaitGroup
	var mu sync.Mutex // guards stdout
	for n := range f.count {
		if limit.Wait(ctx) != nil {
			break
		}
		select {
		case window <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		ev := f.event
		switch {
		case !f.explicitID:
			ev.ID = publish.NewID()
		case f.count > 1:
			ev.ID = fmt.Sprintf("%s-%d", ev.ID, n+1)
		}
		wait.Go(func() {
			err := s.within(ctx, func(ctx context.Context) error {
				sent, err := pub.Send(ctx, ev, f.payload, endpoints...)
				mu.Lock()
				defer mu.Unlock()
				return errors.Join(err, p.printSent(f, sent))
			})
			if err != nil {
				cancel(err)
			}
			<-window
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

// sendWindow bounds the events that wait for their acknowledgement.
const sendWindow = 256

func (p *program) printSent(f *sendFlags, sent []publish.Sent) error {
	for _, s := range sent {
		if s.DeliveryID == "" {
			continue
		}
		if f.json {
			if err := p.writeJSON(s); err != nil {
				return err
			}
			continue
		}
		p.printf("%s  %s  %s\n", s.MessageID, safe(s.EventID), s.DeliveryID)
	}
	return nil
}

// layout asks for a topic that must be there.
func (s *session) layout(ctx context.Context, topic string) (kafka.Layout, error) {
	adm, err := s.kafka.NewAdmin()
	if err != nil {
		return kafka.Layout{}, err
	}
	defer adm.Close()
	return kafka.TopicLayout(ctx, adm, topic)
}

// registeredFor bounds the question whether an endpoint is there, which nothing depends on.
const registeredFor = 2 * time.Second

// warnUnknown says that an endpoint is not there, as far as we may know: who may
// only produce is not told.
func (p *program) warnUnknown(ctx context.Context, s *session, id string) {
	ctx, cancel := context.WithTimeout(ctx, min(registeredFor, s.timeout))
	defer cancel()
	a, err := s.admin(nil)
	if err != nil {
		return
	}
	defer a.Close()
	if _, err = a.Get(ctx, id); errors.Is(err, registry.ErrNotFound) {
		p.notef("%v: unless it is registered within ten minutes, this becomes a dead letter", err)
	}
}

// subscribers are the endpoints that an event of the type goes to now.
func (s *session) subscribers(ctx context.Context, tenant, eventType string) (ids []string, err error) {
	err = s.withEndpoints(ctx, func(endpoints *registry.Follower) error {
		for _, ep := range endpoints.Match(tenant, eventType) {
			ids = append(ids, ep.ID)
		}
		if len(ids) == 0 {
			return fmt.Errorf("no endpoint%s subscribes to %s: nothing was sent", ofTenant(tenant), safe(eventType))
		}
		return nil
	})
	return ids, err
}

// withEndpoints runs work with a view of all that was registered before the call.
func (s *session) withEndpoints(ctx context.Context, work func(*registry.Follower) error) error {
	keys, err := ring(s.Loaded)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	follower := registry.NewFollower(s.kafka, keys, registry.FollowerOptions{})
	ended := make(chan error, 1)
	go func() { ended <- follower.Run(ctx) }()
	if err = settled(ctx, follower, ended); err == nil {
		err = work(follower)
	}
	cancel()
	if ran := <-ended; ran != nil {
		return ran
	}
	return err
}

// settled waits until the follower has seen all that was registered before the call.
// A barrier needs a first answer from a broker, and fails until there is one.
func settled(ctx context.Context, follower *registry.Follower, ended chan error) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := follower.Barrier(ctx)
		if err == nil {
			return nil
		}
		select {
		case ran := <-ended:
			ended <- ran
			return ran
		case <-ctx.Done():
			return err
		case <-again.C:
		}
	}
}

func ofTenant(tenant string) string {
	if tenant == "" {
		return " without tenant"
	}
	return " of tenant " + safe(tenant)
}
