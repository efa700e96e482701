package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
)

// session is one command's way to Kafka, bounded by --timeout.
type session struct {
	*config.Loaded
	kafka   kafka.Config
	timeout time.Duration
	needs   kafka.Role // whose rights the command wants; named where the cluster refuses it
	topics  bool       // the command is about topics: one that is missing ends nothing

	lastDial atomic.Pointer[error] // why the last connection to a broker failed
	reached  atomic.Bool           // one was made
}

// connect reads the configuration. Nothing is dialled yet.
func (p *program) connect(cmd *cobra.Command, timeout time.Duration) (*session, error) {
	loaded, err := p.load(cmd, true)
	if err != nil {
		return nil, err
	}
	s := &session{Loaded: loaded, timeout: timeout, needs: kafka.RoleSRE}
	s.kafka = loaded.KafkaConfig(p.quietLogger(loaded))
	connectIAM(&s.kafka)
	s.kafka.Dialer = s.dial
	return s, nil
}

// quietLogger is for commands that end with one sentence: what clients say on the
// way is only of interest to who asked for it by --log-level debug.
func (p *program) quietLogger(loaded *config.Loaded) *slog.Logger {
	if loaded.Log.Level == "debug" {
		return slog.New(slog.NewTextHandler(p.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

func (s *session) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		s.lastDial.Store(&err)
	} else {
		s.reached.Store(true)
	}
	return conn, err
}

// within runs work that talks to Kafka, for at most --timeout. While no broker can
// be reached, or the groups have no coordinator (the first question about a group
// makes a new cluster elect one), it is run again: nothing has been asked of anyone then.
func (s *session) within(ctx context.Context, work func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	if !s.topics {
		watching.Go(func() { s.watchRegistry(ctx, stop) })
	}
	defer watching.Wait()
	defer stop(nil)
	again := time.NewTicker(250 * time.Millisecond)
	defer again.Stop()
	for {
		err := work(ctx)
		if missing := (*kafka.MissingTopicsError)(nil); errors.As(context.Cause(ctx), &missing) {
			return missing
		}
		if !unreached(err) && !errors.Is(err, kerr.CoordinatorNotAvailable) {
			return s.explain(ctx, err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return s.explain(ctx, err)
		}
	}
}

// watchRegistry ends work whose registry does not exist: who reads it waits for the
// topic, as a process does that starts beside topics apply, and a person should not.
// It asks twice, because not every broker knows at once of a topic that was just made.
func (s *session) watchRegistry(ctx context.Context, stop context.CancelCauseFunc) {
	for try := 0; ; try++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(missingTopicsPause):
		}
		missing := s.missingTopics(ctx)
		if missing == nil || !slices.Contains(missing.Topics, s.kafka.Names.Endpoints()) && !slices.Contains(missing.Topics, s.kafka.Names.Runs()) {
			return
		}
		if try > 0 {
			stop(missing)
			return
		}
	}
}

// missingTopicsPause is longer than almost every command takes.
const missingTopicsPause = 500 * time.Millisecond

// missingTopics are those of Milena's topics that do not exist; nil if there is none, or nobody tells.
func (s *session) missingTopics(ctx context.Context) *kafka.MissingTopicsError {
	adm, err := s.kafka.NewAdmin()
	if err != nil {
		return nil
	}
	defer adm.Close()
	missing, err := kafka.MissingTopics(ctx, adm, s.TopicsConfig())
	if err != nil {
		return nil
	}
	return missing
}

// unreached reports whether an error says that no connection could be made.
func unreached(err error) bool {
	var op *net.OpError
	var unknown *registry.UnknownOutcomeError
	return errors.As(err, &op) && op.Op == "dial" && !errors.As(err, &unknown)
}

// explain makes one sentence of a missing topic and of Kafka's silence, and a list of
// the rights that are missing where the cluster refuses us or, as a writer sees it,
// does not answer.
func (s *session) explain(ctx context.Context, err error) error {
	var unknown *registry.UnknownOutcomeError
	switch {
	case err == nil || errors.As(err, &unknown):
		return err
	case kafka.IsNoTopic(err):
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(askRights, s.timeout))
		defer cancel()
		if missing := s.missingTopics(ctx); missing != nil {
			return missing
		}
		if errors.Is(err, kafka.ErrNoTopic) {
			return err
		}
		return fmt.Errorf("%w (%w)", kafka.ErrNoTopic, err)
	case !errors.Is(ctx.Err(), context.DeadlineExceeded) && !kafka.IsDenied(err):
		return err
	}
	if kafka.IsDenied(err) { // it answers, so it will tell, however slow it is
		return cmp.Or(s.denied(ctx, s.needs, max(askRights, s.timeout)), err)
	}
	if s.lastDial.Load() == nil {
		if denied := s.denied(ctx, s.needs, askRights); denied != nil {
			return denied
		}
	}
	switch last := s.lastDial.Load(); {
	case last != nil && s.reached.Load(): // of several brokers one may be away, or have been
		err = fmt.Errorf("%w (%w)", err, *last)
	case last != nil:
		err = *last
	}
	hint := ""
	if strings.HasPrefix(s.Source("kafka.brokers"), config.DevFile) { // and the line
		hint = "; is milena dev running?"
	}
	return fmt.Errorf("Kafka at %s gave no answer within %s (--timeout): %w%s", strings.Join(s.Kafka.Brokers, ", "), s.timeout, err, hint) //nolint:staticcheck // a name
}

// askRights bounds the question what we may do, or what is missing, which comes after
// --timeout; a Kafka that has answered before gets --timeout again if that is longer.
const askRights = 3 * time.Second

// denied names the rights of a role that are missing; nil if none is, or nobody tells
// within a time. There is another error to report then.
func (s *session) denied(ctx context.Context, role kafka.Role, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if missing, ok := errors.AsType[*kafka.CheckError](s.mayBe(ctx, role)); ok {
		return missing
	}
	return nil
}

// mayBe asks whether we have the rights of a role: a *kafka.CheckError names those
// that are missing.
func (s *session) mayBe(ctx context.Context, role kafka.Role) error {
	cl, err := s.kafka.NewClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	missing, err := kafka.Denied(ctx, cl, s.TopicsConfig(), role)
	if err == nil && len(missing) > 0 {
		err = &kafka.CheckError{Differences: missing}
	}
	return err
}

// ring is the key ring, nil if none is configured.
func ring(loaded *config.Loaded) (*registry.KeyRing, error) {
	if loaded.Keyring == "" {
		return nil, nil
	}
	r, err := registry.ParseKeyRing(loaded.Keyring)
	if err != nil {
		return nil, &config.Error{Problems: []config.Problem{{Key: "keyring", Value: config.Masked, Source: loaded.Source("keyring"), Want: err.Error()}}}
	}
	return r, nil
}

// needRing is for commands that seal or open secrets.
func needRing(loaded *config.Loaded) (*registry.KeyRing, error) {
	r, err := ring(loaded)
	if r == nil && err == nil {
		err = &config.Error{Problems: []config.Problem{{Key: "keyring", Source: "not given",
			Want: "secrets are encrypted at rest; give the key ring by keyring_file or MILENA_KEYRING"}}}
	}
	return r, err
}
