package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/attempts"
	"github.com/milena-project/milena/schemas"
)

// attemptsFlags are the flags of `milena attempts` and `milena tail`.
type attemptsFlags struct {
	filter  attempts.Filter
	since   string
	limit   int
	follow  bool
	json    bool
	timeout time.Duration
}

func (p *program) attemptsCommand() *cobra.Command {
	return p.attemptsVerb(&cobra.Command{Use: "attempts", Args: noArgs,
		Short: "What happened: every attempt, then the next try or the reason why there is none",
		Long: `What happened: every attempt, then the next try or the reason why there is none. Oldest first.
The log is read from its end until --limit attempts are found. With --delivery or --endpoint that is soon,
for only where their attempts can be is read. With the other filters, or where there are fewer, it may be
all of the log, which takes its time: --since says how far back to look.`,
		Example: `  milena attempts --endpoint shop-42 --since 1h --failed
  milena attempts --delivery webhooks.deliveries-3fa94c1e-7-1042.shop-42
  milena attempts --follow --json | jq -r 'select(.status == 401) | .endpoint_id'`}, false)
}

func (p *program) tailCommand() *cobra.Command {
	return p.attemptsVerb(&cobra.Command{Use: "tail", Args: noArgs, Short: "The same as attempts --follow",
		Example: "  milena tail --endpoint shop-42"}, true)
}

func (p *program) attemptsVerb(cmd *cobra.Command, follow bool) *cobra.Command {
	f := &attemptsFlags{}
	fs := cmd.Flags()
	fs.StringVar(&f.filter.Delivery, "delivery", "", "of one delivery, by its id")
	fs.StringVar(&f.filter.Event, "event", "", "of one event, by the producer's id")
	fs.StringVar(&f.filter.Message, "message", "", "of one event, by its message id (webhook-id), msg_…")
	fs.StringVar(&f.filter.Subject, "subject", "", "of events with this subject")
	fs.StringVar(&f.filter.Endpoint, "endpoint", "", "of one endpoint")
	fs.StringVar(&f.since, "since", "", "not older: how long ago (1h, 3d) or a time (2026-11-30T12:00:00Z, or local: 2026-11-30 12:00:00)")
	fs.BoolVar(&f.filter.Failed, "failed", false, "only those that failed")
	fs.IntVar(&f.limit, "limit", 100, "at most so many of the past, the newest")
	fs.BoolVar(&f.follow, "follow", follow, "go on with what comes, until interrupted")
	jsonFlag(cmd, &f.json)
	timeoutFlag(cmd, &f.timeout)
	settings(cmd)
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		var err error
		if f.filter.Since, err = sinceTime(f.since, time.Now()); err != nil {
			return err
		}
		if f.limit < 0 {
			return usage("--limit %d: want 0 or more", f.limit)
		}
		if f.limit == 0 && !f.follow {
			return usage("--limit 0 shows none of the past; it is for --follow")
		}
		s, err := p.connect(cmd, f.timeout)
		if err != nil {
			return err
		}
		return p.showAttempts(cmd.Context(), s, f)
	})
}

// sinceTime reads --since as the commands on dead letters do: a time, or how long ago.
func sinceTime(text string, now time.Time) (time.Time, error) {
	f, err := dlq.Query{Since: text}.Resolve(now)
	if err != nil {
		return time.Time{}, usage("%w", err)
	}
	return f.Since, nil
}

func (p *program) showAttempts(ctx context.Context, s *session, f *attemptsFlags) error {
	log, err := attempts.Open(s.kafka, s.timeout)
	if err != nil {
		return err
	}
	defer log.Close()
	log.Trouble = func(err error) { p.notef("milena: Kafka does not answer, trying again: %v", err) }
	var end attempts.Position
	err = s.within(ctx, func(ctx context.Context) (err error) {
		end, err = log.End(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if f.limit > 0 {
		// Reading may take long; what is bounded is how long a broker gives no answer.
		past, more, err := log.Last(ctx, f.filter, end, f.limit)
		_, partly := errors.AsType[*attempts.PartialError](err)
		if err != nil && !partly {
			return err
		}
		if more {
			p.notef("older attempts are left out (--limit %d)", f.limit)
		}
		for i := range past {
			if err := p.showAttempt(f, &past[i]); err != nil {
				return err
			}
		}
		if partly {
			return err
		}
		if len(past) == 0 {
			p.sayNoAttempts(ctx, s, f)
		}
	}
	if !f.follow {
		return nil
	}
	return log.Follow(ctx, f.filter, end, func(a schemas.Attempt) error { return p.showAttempt(f, &a) })
}

// sayNoAttempts says that there are none yet, and why perhaps.
func (p *program) sayNoAttempts(ctx context.Context, s *session, f *attemptsFlags) {
	if !f.follow {
		p.notef("no such attempts")
	}
	// "None" is read as "never attempted", so an id of another sort must not look like an answer.
	for flag, id := range map[string]string{"event": f.filter.Event, "delivery": f.filter.Delivery} {
		if strings.HasPrefix(id, "msg_") {
			p.notef("--%s %s looks like a message id; that is --message %[2]s", flag, safe(id))
		}
	}
	if id := f.filter.Endpoint; id != "" {
		p.sayUnknown(ctx, s, id)
	}
}

func (p *program) showAttempt(f *attemptsFlags, a *schemas.Attempt) error {
	if f.json {
		return p.writeJSON(a)
	}
	return p.writeAttempt(a, "")
}

// writeAttempt writes an attempt as wide as the terminal is, or whole.
func (p *program) writeAttempt(a *schemas.Attempt, indent string) error {
	style := attempts.Style{Color: isTerminal(p.out), Now: time.Now(), Width: max(0, p.width()-len(indent))}
	line := strings.ReplaceAll(style.Line(a), "\n", "\n"+indent)
	_, err := io.WriteString(p.out, indent+line+"\n")
	return err
}

// width is how many columns the terminal on stdout has; 0 if it is none.
func (p *program) width() int {
	if terminal, _, columns := screenOf(p.out); terminal {
		return columns()
	}
	return 0
}

// isTerminal reports whether a person reads it. NO_COLOR is honoured by taking
// everything for a pipe.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
}
