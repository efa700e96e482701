package main

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/milena-project/milena/dlq"
)

func (p *program) dlqCommand() *cobra.Command {
	return group("dlq", "Look at dead letters, replay or discard them",
		"  milena dlq summary                                  # the first thing to look at\n"+
			"  milena dlq list --endpoint shop-42 --since 2h\n"+
			"  milena dlq replay --endpoint shop-42 --status 5xx --rate 100/s --because 'mended, INC-7'",
		p.dlqSummaryCommand(), p.dlqListCommand(), p.dlqCountCommand(), p.dlqShowCommand(), p.dlqReplayCommand(),
		p.dlqDiscardCommand(), p.dlqExportCommand(), p.dlqImportCommand())
}

// dlqRun is one execution of a verb about dead letters.
type dlqRun struct {
	*program
	cmd     *cobra.Command
	session *session
	store   *dlq.Store
	filter  dlq.Filter
}

// dlqFlags are the flags that all of them have.
type dlqFlags struct {
	query   dlq.Query
	timeout time.Duration
	json    bool

	before func(dlq.Filter) error // looks at the flags before anything is touched; nil: there is nothing to see
}

// filterFlags are the one language of filters.
func filterFlags(cmd *cobra.Command, q *dlq.Query) {
	fs := cmd.Flags()
	fs.StringSliceVar(&q.Endpoints, "endpoint", nil, "of this endpoint (repeatable)")
	fs.StringSliceVar(&q.Tenants, "tenant", nil, "of this tenant (repeatable)")
	fs.StringSliceVar(&q.Types, "type", nil, "of this event type; * stands for any text (repeatable)")
	fs.StringArrayVar(&q.Subjects, "subject", nil, "with this subject; * stands for any text (repeatable)")
	fs.StringSliceVar(&q.Reasons, "reason", nil, "that died for this reason (repeatable)")
	fs.StringSliceVar(&q.Statuses, "status", nil, "whose last answer was 404, 5xx, or none (repeatable)")
	fs.StringSliceVar(&q.ErrorClasses, "error-class", nil, "whose last attempt failed by dns, connect, timeout …, or was answered (repeatable)")
	fs.StringArrayVar(&q.IDs, "id", nil, "with this delivery id, message id or event id (repeatable)")
	fs.StringVar(&q.Since, "since", "", "that died at this time or later: how long ago (2h, 3d) or a time, with its zone or local")
	fs.StringVar(&q.Until, "until", "", "that died before: how long ago or a time")
	fs.BoolVar(&q.Replayed, "replayed", false, "that were replayed before and died again")
	fs.BoolVar(&q.NotReplayed, "not-replayed", false, "that were never replayed")
	fs.StringVar(&q.ExpiringWithin, "expiring-within", "", "that the topic's retention deletes within this time")
	fs.IntVar(&q.Limit, "limit", 0, "only the newest so many; 0 is all")
}

// dlqVerb completes a command about dead letters. The filter is resolved and the
// first answer of Kafka is there, within --timeout, when run is called.
func (p *program) dlqVerb(cmd *cobra.Command, f *dlqFlags, run func(r *dlqRun, args []string) error) *cobra.Command {
	timeoutFlag(cmd, &f.timeout)
	settings(cmd)
	return p.verb(cmd, func(cmd *cobra.Command, args []string) error {
		filter, err := f.query.Resolve(time.Now())
		if err != nil {
			return usage("%w", err)
		}
		if f.before != nil {
			if err := f.before(filter); err != nil {
				return err
			}
		}
		collect(33)
		r := &dlqRun{program: p, cmd: cmd}
		if r.session, err = p.connect(cmd, f.timeout); err != nil {
			return err
		}
		if r.store, err = dlq.Open(r.session.kafka); err != nil {
			return err
		}
		defer r.store.Close()
		err = r.session.within(cmd.Context(), func(ctx context.Context) error {
			if _, err := r.store.Snapshot(ctx); err != nil {
				return err
			}
			r.filter, err = r.store.Resolve(ctx, filter)
			return err
		})
		if err != nil {
			return err
		}
		return run(r, args)
	})
}

// collect lets at most so many percent of what is in use wait to be collected, not as
// much again: what is kept of millions of letters is within 32 bytes of each.
func collect(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// partial says on stderr how far a reading came that was ended early.
func (r *dlqRun) partial(c dlq.Coverage, err error) error {
	if c.Foreign > 0 {
		r.notef("milena: passed over, because no dead letter: %s of the topic", counted(c.Foreign, "record"))
	}
	if !errors.Is(err, dlq.ErrPartial) {
		return err
	}
	seen := ""
	if !c.BackTo.IsZero() {
		seen = ", everything written since " + clock(c.BackTo.Add(time.Second)) + " is in it" // it is cut to the second
	}
	r.notef("milena: interrupted, so this is only a part: %d of %d partitions were read to their end%s", c.Partitions, c.Of, seen)
	return &exit{code: exitFailed}
}

// terminal reports whether a person is there to be asked.
func (p *program) terminal() bool { return isTTY(p.in) && isTTY(p.err) }

func isTTY(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func clock(t time.Time) string { return dlq.Clock(t) }
