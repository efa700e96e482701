package dlq

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/milena-project/milena/schemas"
)

// WritesDeliveries reports whether runs of a kind do, so that Follow can tell what became
// of them.
func WritesDeliveries(kind schemas.RunKind) bool {
	return kind == schemas.RunReplay || kind == schemas.RunResend
}

// Follow tells what became of the deliveries that a run wrote, whoever has written
// them, and waits as Execute does with Options.Wait, of which WaitFor and Following
// count. ErrUndelivered unless all were delivered. The run is not to be live any more:
// what it writes later is not seen.
func (s *Store) Follow(ctx context.Context, run *schemas.Run, opts Options) (*Outcomes, error) {
	if !WritesDeliveries(run.Kind) {
		return nil, fmt.Errorf("run %s is one of kind %s, which writes no deliveries to follow", run.ID, run.Kind)
	}
	until := opts.bound() // what the reading takes, which it does not cut, counts
	f, letters, err := s.rejoin(ctx, run)
	if err != nil {
		return nil, err
	}
	f.lost, f.merged = max(0, run.Counts.Written-letters), letters-int64(len(f.open))
	out, err := f.wait(ctx, until, opts)
	return out, undelivered(run, out, err)
}

// rejoin finds the deliveries of a run by its id in their headers, and the place in the
// attempts from which on something is said of them. All partitions are read, for their
// number may have been raised since. It counts the letters that were written, apart from
// their copies and retries, at 12 bytes each: of one event to one endpoint there may be
// several, by the endpoints that they were of.
func (s *Store) rejoin(ctx context.Context, run *schemas.Run) (f *follower, letters int64, err error) {
	topic := s.names.Attempts()
	since := run.Started.Add(-clockMargin)
	at, err := s.reader.After(ctx, topic, since)
	if err != nil {
		return nil, 0, explain(err, topic, "Read")
	}
	if err := s.remembered(ctx, topic, run.Started); err != nil {
		return nil, 0, err
	}
	f = newFollower(s, run.ID, run.Started, at, nil)
	if run.Kind == schemas.RunResend {
		f.mark = []byte(run.ID)
	}
	topic = s.names.Deliveries()
	to, err := s.reader.Ends(ctx, topic)
	if err != nil {
		return nil, 0, explain(err, topic, "Read")
	}
	past := Past{Since: since}
	if !run.Finished.IsZero() {
		past.Until = run.Finished.Add(clockMargin)
	}
	from, to, err := s.window(ctx, topic, past, to)
	if err != nil {
		return nil, 0, err
	}
	ours := func(batch []byte) bool { return bytes.Contains(batch, []byte(run.ID)) }
	var mu sync.Mutex
	var seen seen
	err = s.forwards(ctx, topic, every(int32(len(to))), from, to, ours, func(rec *schemas.Record) error {
		if d, err := schemas.ParseDelivery(*rec); err == nil && d.Run == run.ID {
			f.expect(&d)
			mu.Lock()
			defer mu.Unlock()
			seen.add(hashOfString(schemas.LetterKey(d.ID(), d.Generation) + "\n" + d.ResendOf))
		}
		return nil
	})
	return f, int64(seen.n), err
}

// remembered is an error if retention has taken attempts that were made since a time:
// who waits for deliveries that came to an end then would wait for ever.
func (s *Store) remembered(ctx context.Context, topic string, since time.Time) error {
	back, err := s.forgotten(ctx, topic, since)
	if err != nil {
		return explain(err, topic, "Read")
	}
	for _, at := range back {
		if !at.IsZero() {
			return fmt.Errorf("the delivery log goes back to %s only, and the run began at %s: what came of it cannot be told",
				Clock(at), Clock(since))
		}
	}
	return nil
}

// forgotten says, by partition, to when a topic goes back of which retention may have taken
// records that were written since a time; zero: it has all of them.
func (s *Store) forgotten(ctx context.Context, topic string, since time.Time) ([]time.Time, error) {
	back, err := s.backTo(ctx, topic)
	if err != nil {
		return nil, err
	}
	// That a partition begins later may only mean that little is written to it.
	keep, noKeep := s.retention(ctx, topic)
	for p, at := range back {
		if noKeep == nil && (keep == 0 || since.After(time.Now().Add(-keep))) || !at.After(since) {
			back[p] = time.Time{}
		}
	}
	return back, nil
}

// backTo is when the first record of each partition was written that retention has left;
// now, if it has left none, and zero, if it has taken none.
func (s *Store) backTo(ctx context.Context, topic string) ([]time.Time, error) {
	starts, err := s.reader.Starts(ctx, topic)
	if err != nil {
		return nil, err
	}
	back := make([]time.Time, len(starts))
	for p, start := range starts {
		if start == 0 {
			continue
		}
		f, err := s.reader.FetchAtOrAfter(ctx, topic, int32(p), start, 1)
		if err != nil {
			return nil, err
		}
		if back[p] = time.Now(); len(f.Records) > 0 {
			back[p] = f.Records[0].Timestamp
		}
	}
	return back, nil
}
