package consume

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// arm gives positioned assignments what is polled from now on. Only the poll loop
// calls it, at the beginning of a turn.
func (o *ownership) arm() {
	o.mu.Lock()
	back := make(map[string]map[int32]kgo.EpochOffset)
	for p, a := range o.current {
		if !a.positioned || a.armed || a.dying || o.closing {
			continue
		}
		a.armed = true
		if a.mistaken {
			if back[p.Topic] == nil {
				back[p.Topic] = make(map[int32]kgo.EpochOffset)
			}
			back[p.Topic][p.Partition] = kgo.EpochOffset{Epoch: -1, Offset: a.base}
		}
		o.wg.Go(func() { a.run(o.cfg.Start) })
	}
	cl := o.cl
	o.mu.Unlock()
	if len(back) > 0 {
		cl.SetOffsets(back)
	}
	o.reconcile()
}

// reconcile tells kgo which partitions should be fetched, where that has changed.
func (o *ownership) reconcile() {
	o.mu.Lock()
	defer o.mu.Unlock()
	var pause, resume map[string][]int32
	for p, a := range o.current {
		want := o.closing || !a.armed || a.dying || a.blocked || a.led.isBehind(a)
		if want == o.told[p] {
			continue
		}
		o.told[p] = want
		to := &resume
		if want {
			to = &pause
		}
		if *to == nil {
			*to = make(map[string][]int32)
		}
		(*to)[p.Topic] = append((*to)[p.Topic], p.Partition)
	}
	if pause != nil {
		o.cl.PauseFetchPartitions(pause)
	}
	if resume != nil {
		o.cl.ResumeFetchPartitions(resume)
	}
}

// accept hands polled records to the assignment that they belong to, and drops
// those that belong to none. Only the poll loop calls it.
func (o *ownership) accept(p Partition, topicID [16]byte, polled []*kgo.Record) (recreated bool) {
	o.mu.Lock()
	a := o.current[p]
	switch {
	case a == nil, a.blocked: // revoked or lost since it was polled; or see truncated
		o.mu.Unlock()
		return false
	case !a.armed:
		a.mistaken = true
		o.mu.Unlock()
		return false
	case topicID != a.topicID && topicID != [16]byte{} && a.topicID != [16]byte{}:
		o.mu.Unlock()
		return true
	}
	o.mu.Unlock()
	recs := make([]schemas.Record, len(polled))
	for i, r := range polled {
		recs[i] = kafka.FromKgo(r, a.topicID)
	}
	control := func(i int) bool { return polled[i].Attrs.IsControl() }
	if a.led.receive(a, recs, control, &o.limits) {
		o.reconcile()
	}
	return false
}
