package dlq

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// Sources are topics that the router reads, for a resend of what deliveries has no
// longer, or never had: their retention may be longer, and an endpoint may have been
// registered after an event.
type Sources struct {
	Topics []string
	// Read makes a delivery of a record as the router does, without an endpoint. Its
	// error passes the record over.
	Read func(schemas.Record) (schemas.Delivery, error)
	// Match are the ids of the endpoints that an event is for now.
	Match func(tenant, eventType string) []string
}

// sourcePick is an event of a source that is to be sent to an endpoint.
type sourcePick struct {
	offset   int64
	endpoint int32 // index of fromSources.names
}

// fromSources is what a resend takes from sources: 16 bytes a delivery.
type fromSources struct {
	*Sources

	names   []string // of endpoints
	indexes map[string]int32
	picks   map[kafkaPartition][]sourcePick
}

type kafkaPartition struct {
	topic string
	part  int32
}

// readSources selects from the sources what deliveries does not have.
func (r *resending) readSources(ctx context.Context) error {
	src := &fromSources{Sources: r.past.Sources, indexes: map[string]int32{}, picks: map[kafkaPartition][]sourcePick{}}
	routed, err := r.store.commits(ctx, "router") // what lies behind is its backlog; before what it has written is read
	if err != nil {
		return err
	}
	if err := r.readKnown(ctx); err != nil {
		return err
	}
	for _, topic := range src.Topics {
		ends, err := r.store.reader.Ends(ctx, topic)
		if err != nil {
			return explain(err, topic, "Read")
		}
		from, to, err := r.store.window(ctx, topic, r.past, ends)
		if err != nil {
			return err
		}
		err = r.store.forwards(ctx, topic, every(int32(len(to))), from, to, nil, func(rec *schemas.Record) error {
			r.takeEvent(src, rec, rec.Offset >= routed[topic][rec.Partition].Offset)
			return nil
		})
		if err != nil {
			return err
		}
	}
	r.sel.sources = src
	return nil
}

// readKnown notes which deliveries the topic has, also behind the window: the router
// may have come later.
func (r *resending) readKnown(ctx context.Context) error {
	topic := r.store.names.Deliveries()
	from, ends, err := r.onwards(ctx, topic)
	if err != nil {
		return err
	}
	return r.parallel(ctx, topic, from, ends, func(rec *schemas.Record) error {
		if d, err := schemas.ParseDelivery(*rec); err == nil && d.Origin.Topic != topic {
			r.mu.Lock()
			r.known.add(hashOfString(d.ID()))
			r.mu.Unlock()
		}
		return nil
	})
}

// takeEvent selects an event for each endpoint that should have it. open says that
// the router has yet to come to it.
func (r *resending) takeEvent(src *fromSources, rec *schemas.Record, open bool) {
	d, err := src.Read(*rec)
	if err != nil {
		return
	}
	for _, id := range src.Match(d.Event.Tenant, d.Event.Type) {
		one := d
		one.EndpointID = id
		if !r.wanted(&one, rec) {
			continue
		}
		r.mu.Lock()
		if !r.known.has(hashOfString(one.ID())) && r.count(&one, rec, open) {
			i, ok := src.indexes[id]
			if !ok {
				i = int32(len(src.names))
				src.indexes[id] = i
				src.names = append(src.names, id)
			}
			at := kafkaPartition{rec.Topic, rec.Partition}
			src.picks[at] = append(src.picks[at], sourcePick{rec.Offset, i})
		}
		r.mu.Unlock()
	}
}

// resendSources writes what was selected from sources.
func (r *runner) resendSources(ctx context.Context, src *fromSources, partitions int32) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	turns := make(chan struct{}, chunksAtOnce)
	for at, picks := range src.picks { // the picks in the order of the log
		offsets := make([]int64, len(picks))
		for i := range picks {
			offsets[i] = picks[i].offset
		}
		group.Go(func() error {
			left := picks
			return r.store.records(gctx, at.topic, at.part, slices.Compact(offsets), chunkFor(chunksAtOnce), &turn{of: turns}, func(rec *schemas.Record) error {
				d, err := src.Read(*rec)
				if err != nil {
					return err // it could be read a moment ago
				}
				for len(left) > 0 && left[0].offset < rec.Offset {
					left = left[1:] // retention took it meanwhile
				}
				for ; len(left) > 0 && left[0].offset == rec.Offset; left = left[1:] {
					one := d
					one.EndpointID = src.names[left[0].endpoint]
					if err := r.resendOne(gctx, &one, kafka.Partition([]byte(one.EndpointID), partitions)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return group.Wait()
}
