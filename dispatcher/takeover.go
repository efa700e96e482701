package dispatcher

import (
	"context"
	"time"

	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/schemas"
)

// Takeover is what an owner finds: its own claim, those before it as far down as
// anything on hold may go back, and the health of every endpoint in trouble.
type Takeover struct {
	Claim  int64
	Claims []schemas.Claim // ascending; the last one is the owner's
	Health map[string]schemas.Health
}

// HoldLog is the hold and health topics of a partition. Append and WriteHealth call
// acked as the effects do, in the order of the log.
type HoldLog interface {
	// TakeOver reads health, writes a claim and reads on up to it. What others write
	// there after the claim is nobody's. owned is asked between the reading and the
	// writing: a claim of a process that had lost the partition by then must not
	// count, however late it lands.
	TakeOver(ctx context.Context, partition int32, owned func() bool) (Takeover, error)
	// Append writes a delivery to hold. An offset of -1 says that it ended as a dead
	// letter there: hold would not take it.
	Append(partition int32, claim int64, d *schemas.Delivery, acked func(offset int64))
	// WriteHealth writes an endpoint's health under a claim; nil is a tombstone.
	WriteHealth(partition int32, claim int64, endpointID string, h *schemas.Health, acked func())
	// ReadHold reads from an offset on, at most about limit bytes.
	ReadHold(ctx context.Context, partition int32, from int64, limit int) (HoldChunk, error)
}

// takeOver restores every lane in trouble before the first record is taken in.
func (p *Partition) takeOver(t Takeover) {
	s := p.d.lanes
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p.claim, p.claims = t.Claim, t.Claims
	end := t.Claims[len(t.Claims)-1].HoldEnd
	for id, h := range t.Health {
		key := id
		if p.d.Placement.PartitionOf(id) != p.number {
			if h.Next == nil {
				continue // it is sent to elsewhere, and nothing of it stands here
			}
			key, p.strays = strayKey(id, p.number), true
		}
		l := s.laneOf(key, id, p, "")
		l.telling = telling{stands: true, dirty: true}
		l.version = h.Version
		if h.Next != nil {
			l.held = &held{
				tracker: offsets.NewTracker(*h.Next), searched: *h.Next, last: end - 1, done: h.Done,
				before: end, guess: max(1, h.Held), taking: true, since: now,
			}
			if h.HeldSince > 0 {
				l.held.since = time.UnixMilli(h.HeldSince)
			}
			l.anchor = *h.Next
			p.held[l] = struct{}{}
		}
		if e := h.Since; e != nil {
			l.episode = episode{Episode: *e}
			l.disabledAt = e.DisabledVersion
			l.breaker.restore(e.BreakerStep, e.OpenUntil, now)
			l.pace.failed()
		}
		if h.Paused != nil {
			l.pausedUntil, l.pauseStatus = h.Paused.Until, h.Paused.Status
			if longest := now.Add(maxPause); l.pausedUntil.After(longest) {
				l.pausedUntil = longest // it was written by a clock ahead of ours
			}
		}
		s.use(l, p.d.Endpoints.Endpoint(id, nil), now) // ends what is about an older configuration
		// The record carries our claim from now on, and one that nothing stands
		// behind any more becomes a tombstone.
		s.tell(l)
		if l.held != nil {
			s.leaveHold(l, l.held)
		}
		s.settleIn(l, now)
	}
	s.pump(now)
}

// takeoverRetry is how long an owner waits before it claims again after a failure.
const takeoverRetry = 500 * time.Millisecond

// Assign begins an assignment of a partition: it claims the partition's hold, reads
// the health of its endpoints, and only then may records be taken in. It returns
// nil when ctx ends first.
func (d *Dispatcher) Assign(ctx context.Context, partition int32, src Source) *Partition {
	for {
		t, err := d.HoldLog.TakeOver(ctx, partition, src.Owned)
		if err == nil {
			return d.begin(ctx, partition, src, t)
		}
		if ctx.Err() != nil {
			return nil
		}
		d.Logger.Warn("partition cannot be claimed; its deliveries wait", "partition", partition, "err", err)
		if !sleep(ctx, takeoverRetry) {
			return nil
		}
	}
}

func (d *Dispatcher) begin(ctx context.Context, partition int32, src Source, t Takeover) *Partition {
	p := &Partition{
		d: d, number: partition, src: src, held: map[*lane]struct{}{}, toHold: map[*item]struct{}{},
		room: make(chan struct{}, 1), asked: make(chan struct{}, 1), drained: make(chan struct{}), readEnded: make(chan struct{}),
	}
	p.takeOver(t)
	ctx, p.endReading = context.WithCancel(ctx)
	go func() {
		defer close(p.readEnded)
		p.readHold(ctx)
	}()
	return p
}
