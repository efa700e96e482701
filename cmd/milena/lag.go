package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/lag"
)

// lagFlags are the flags of `milena lag`.
type lagFlags struct {
	style    lag.Style
	json     bool
	watch    bool
	interval time.Duration
	maxAge   time.Duration
	timeout  time.Duration
}

func (p *program) lagCommand() *cobra.Command {
	f := &lagFlags{}
	cmd := &cobra.Command{Use: "lag", Args: noArgs,
		Short: "What is left to do, what waits, what is held and what is dead, from Kafka alone",
		Long: `What is left to do, what waits, what is held and what is dead, from Kafka alone: offsets, commit
metadata and a few fetched records of each partition. It is right also when every process is dead, joins no
group and commits nothing. Records above the commit that are done, what waits in a tier and a transaction's
marker are not taken for work. Where offsets that are no records may be among those counted, the number is
marked ≤. What is on hold is as of the last word of the partitions' owners.

The states, from the least to the most urgent; of those that hold a partition has the last:
` + lag.Describe() + `
Without --watch the exit code is 0, or 1 where --max-age is exceeded. What is on hold counts for no --max-age: it
waits for its endpoint.`,
		Example: `  milena lag
  milena lag --max-age 1m            # exit code 1 if something has been ready for longer
  milena lag --watch --interval 10s
  milena lag --json | jq '.topics[] | select(.state != "OK")'`}
	fs := cmd.Flags()
	fs.BoolVar(&f.style.Partitions, "partitions", false, "every partition, not only those with something the matter")
	fs.BoolVar(&f.watch, "watch", false, "look again and again, until interrupted")
	fs.DurationVar(&f.interval, "interval", 5*time.Second, "between two looks of --watch")
	fs.DurationVar(&f.maxAge, "max-age", 0, "exit with 1 if a record has been ready, or overdue, for longer than this")
	jsonFlag(cmd, &f.json)
	timeoutFlag(cmd, &f.timeout)
	settings(cmd)
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		switch {
		case f.maxAge < 0:
			return usage("--max-age %s: want a duration above 0", f.maxAge)
		case f.watch && f.interval < time.Second:
			return usage("--interval %s: want 1s or more", f.interval)
		case f.watch && f.maxAge > 0:
			return usage("--max-age is for one look; leave --watch out")
		}
		s, err := p.connect(cmd, f.timeout)
		if err != nil {
			return err
		}
		r, err := lag.Open(s.kafka, s.Sources.Topics, f.timeout)
		if err != nil {
			return err
		}
		defer r.Close()
		if f.watch {
			return p.watchLag(cmd.Context(), s, r, f)
		}
		rep, err := s.lag(cmd.Context(), r)
		if err != nil {
			return err
		}
		if err := p.showLag(rep, f); err != nil {
			return err
		}
		if f.maxAge > 0 && rep.OlderThan(f.maxAge) {
			return fmt.Errorf("a record in %s/%d has been ready for %s, longer than %s (--max-age)", rep.Oldest.Topic, rep.Oldest.Partition,
				rep.At.Sub(rep.Oldest.Since).Round(time.Second), f.maxAge)
		}
		return nil
	})
}

// lag takes one look. Counting dead letters may take half of --timeout.
func (s *session) lag(ctx context.Context, r *lag.Reader) (rep *lag.Report, err error) {
	err = s.within(ctx, func(ctx context.Context) error {
		rep, err = r.Look(ctx, time.Now(), s.timeout/2)
		return err
	})
	return rep, err
}

func (p *program) showLag(rep *lag.Report, f *lagFlags) error {
	if f.json {
		return p.writeJSON(rep)
	}
	f.style.Color = isTerminal(p.out)
	return f.style.Write(p.out, rep)
}

// clearScreen moves home and clears what stands below.
const clearScreen = "\x1b[H\x1b[J"

// watchLag looks again and again. A Kafka that does not answer is said and waited for.
func (p *program) watchLag(ctx context.Context, s *session, r *lag.Reader, f *lagFlags) error {
	var watch lag.Watch
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for {
		rep, err := s.lag(ctx, r)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // interrupted: that is how it ends
		case err != nil:
			p.notef("%s %v", time.Now().Format(time.TimeOnly), err)
		default:
			watch.Look(rep)
			rep.Judge()
			if err := p.showWatched(rep, f); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *program) showWatched(rep *lag.Report, f *lagFlags) error {
	if f.json {
		return p.showLag(rep, f)
	}
	var b strings.Builder
	f.style.Color = isTerminal(p.out)
	if f.style.Color {
		b.WriteString(clearScreen)
	}
	fmt.Fprintf(&b, "%s, every %s\n", rep.At.Format(time.TimeOnly), f.interval)
	if err := f.style.Write(&b, rep); err != nil {
		return err
	}
	if !f.style.Color {
		b.WriteString("\n")
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}
