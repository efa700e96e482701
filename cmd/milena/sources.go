package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/router"
)

// sourcesFlags are those of `milena sources check`.
type sourcesFlags struct {
	last    int
	json    bool
	timeout time.Duration
}

func (p *program) sourcesCommand() *cobra.Command {
	return group("sources", "Look at topics of your own as the router does",
		"  milena sources check --sources-topics orders,payments", p.sourcesCheckCommand())
}

func (p *program) sourcesCheckCommand() *cobra.Command {
	f := &sourcesFlags{}
	cmd := &cobra.Command{Use: "check [TOPIC...]",
		Short: "Show what the router would read from the last records of a topic, and who would get them",
		Long: `Show what the router would read from the last records of a topic, and which endpoints would get them.
Without a topic: those of sources.topics. Nothing is written or committed.
Exit code 0: all can be read; 1: some would be dead letters, each with the reason.`,
		Example: `  milena sources check
  milena sources check orders --last 50 --sources-topics orders --sources-types orders=order.changed
  milena sources check --json | jq -r 'select(.malformed) | .topic + " " + .malformed'`}
	fs := cmd.Flags()
	fs.IntVar(&f.last, "last", 10, "how many records of each topic, the newest")
	jsonFlag(cmd, &f.json)
	timeoutFlag(cmd, &f.timeout)
	settings(cmd)
	return p.verb(cmd, func(cmd *cobra.Command, topics []string) error {
		if f.last < 1 {
			return usage("--last %d: want at least 1", f.last)
		}
		s, err := p.connect(cmd, f.timeout)
		if err != nil {
			return err
		}
		if len(topics) == 0 {
			topics = s.Sources.Topics
		}
		if len(topics) == 0 {
			return usage("no topic: name one, or give sources.topics")
		}
		return p.checkSources(cmd.Context(), s, f, topics)
	})
}

func (p *program) checkSources(ctx context.Context, s *session, f *sourcesFlags, topics []string) error {
	var seen []router.Seen
	err := s.within(ctx, func(ctx context.Context) error {
		seen = nil
		reader, err := kafka.NewReader(s.kafka)
		if err != nil {
			return err
		}
		defer reader.Close()
		return s.withEndpoints(ctx, func(endpoints *registry.Follower) error {
			for _, topic := range topics {
				records, err := reader.Last(ctx, topic, f.last)
				if kafka.IsNoTopic(err) {
					return fmt.Errorf("no such topic: %s; sources are topics of your own, which milena topics apply does not make", safe(topic))
				}
				if err != nil {
					return err
				}
				mapping := router.Mapping{Types: s.Sources.Types, Tenants: s.Sources.Tenants}
				for i := range records {
					seen = append(seen, router.Look(records[i], mapping, endpoints.Match))
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return p.showSeen(f, seen, topics)
}

func (p *program) showSeen(f *sourcesFlags, seen []router.Seen, topics []string) error {
	malformed := 0
	for i := range seen {
		if seen[i].Malformed != "" {
			malformed++
		}
		if f.json {
			if err := p.writeJSON(seen[i]); err != nil {
				return err
			}
			continue
		}
		p.printf("%s", seenText(&seen[i]))
	}
	for _, topic := range topics {
		if !slices.ContainsFunc(seen, func(s router.Seen) bool { return s.Topic == topic }) {
			p.notef("%s holds no records", safe(topic))
		}
	}
	if malformed > 0 {
		return &exit{code: exitFailed, cause: fmt.Errorf("%d of %s would be dead letters (malformed)", malformed, counted(int64(len(seen)), "record"))}
	}
	return nil
}

// seenText is two lines: what the record is, and where it would go.
func seenText(s *router.Seen) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%d@%d  %s", safe(s.Topic), s.Partition, s.Offset, clock(s.Time))
	for _, part := range [][2]string{{"type", s.Type}, {"tenant", s.Tenant}, {"subject", s.Subject}, {"id", s.EventID}, {"source", s.Source}} {
		if part[1] != "" {
			fmt.Fprintf(&b, "  %s %s", part[0], safe(part[1]))
		}
	}
	fmt.Fprintf(&b, "  %d bytes\n    ", s.Bytes)
	switch n := len(s.Endpoints); {
	case s.Tombstone:
		b.WriteString("no event: a tombstone, passed over")
	case s.Malformed != "":
		b.WriteString("dead letter: " + safe(s.Malformed))
	case n == 0:
		b.WriteString("no endpoint" + ofTenant(s.Tenant) + " subscribes to " + safe(s.Type) + ": counted, not stored")
	case n > shownEndpoints:
		fmt.Fprintf(&b, "to %d endpoints: %s …", n, strings.Join(s.Endpoints[:shownEndpoints], ", "))
	default:
		b.WriteString("to " + strings.Join(s.Endpoints, ", "))
	}
	return b.String() + "\n"
}

// shownEndpoints is how many a person wants to read; --json has all.
const shownEndpoints = 10
