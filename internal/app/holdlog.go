package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/milena-project/milena/dispatcher"
	"github.com/milena-project/milena/internal/health"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// holdLog is the dispatcher's hold and health on Kafka.
type holdLog struct {
	effects

	reader  *kafka.Reader
	process string
}

// TakeOver claims a partition: it learns the claims before its own, writes its own
// and reads health up to it.
//
//	read health → read the end of hold → still the owner? → write the claim → [another
//	process that still thinks it owns the partition appends to hold: beyond our
//	HoldEnd, ignored; it writes health: not under the last claim, ignored; it claims,
//	or an earlier claim of its lands late: of two with one epoch the first counts, and
//	if that is not ours we begin again] → read health up to the claim
func (h *holdLog) TakeOver(ctx context.Context, partition int32, owned func() bool) (dispatcher.Takeover, error) {
	var view health.View
	topic := h.names.Health()
	end, err := h.end(ctx, topic, partition)
	if err != nil {
		return dispatcher.Takeover{}, err
	}
	if err := view.ReadTo(ctx, h.reader, topic, partition, end); err != nil {
		return dispatcher.Takeover{}, err
	}
	holdEnd, err := h.end(ctx, h.names.Hold(), partition)
	if err != nil {
		return dispatcher.Takeover{}, err
	}
	if !owned() {
		return dispatcher.Takeover{}, errNotOwner
	}
	claim := schemas.ClaimRecord{Epoch: view.Epoch() + 1, HoldEnd: holdEnd, Process: h.process}
	claim.Earlier = view.Needed(claim.HoldEnd)
	number, err := h.writeClaim(ctx, partition, claim)
	if err != nil {
		return dispatcher.Takeover{}, err
	}
	if err := view.ReadTo(ctx, h.reader, topic, partition, number+1); err != nil {
		return dispatcher.Takeover{}, err
	}
	if !view.Last(number) {
		return dispatcher.Takeover{}, errClaimed
	}
	h.forgetClaims(partition, view.OldKeys())
	return dispatcher.Takeover{Claim: number, Claims: view.Claims(), Health: view.Endpoints()}, nil
}

// end is the end of a partition's log.
func (h *holdLog) end(ctx context.Context, topic string, partition int32) (int64, error) {
	ends, err := h.reader.HighWatermarks(ctx, topic)
	if err != nil {
		return 0, err
	}
	if int(partition) >= len(ends) {
		return 0, fmt.Errorf("%s has %d partitions, and %s has a partition %d: stop every milena process, raise all topics to the same number (milena topics plan shows it), start again",
			topic, len(ends), h.names.Deliveries(), partition)
	}
	return ends[partition], nil
}

var (
	errNotOwner = errors.New("the group's coordinator has not answered lately; another process may own it")
	errClaimed  = errors.New("another process has claimed it at the same moment")
)

// forgetClaims writes tombstones for the records of old claims.
func (h *holdLog) forgetClaims(partition int32, keys [][]byte) {
	for _, key := range keys {
		h.write(kafka.Message{Topic: h.names.Health(), Partition: partition, Key: key}, func() {}, func() {})
	}
}

func (h *holdLog) writeClaim(ctx context.Context, partition int32, claim schemas.ClaimRecord) (int64, error) {
	value, err := json.Marshal(claim)
	if err != nil {
		return 0, fmt.Errorf("claim: %w", err)
	}
	written := make(chan kafka.Written, 1)
	key := fmt.Sprintf("%s.%d.%08x", schemas.ClaimKey, claim.Epoch, rand.Uint32()) //nolint:gosec // no secret
	h.writer.Write(kafka.Message{Topic: h.names.Health(), Partition: partition, Key: []byte(key), Value: value},
		func(w kafka.Written) { written <- w })
	select {
	case w := <-written:
		return w.Offset, w.Err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Append writes a delivery to hold.
func (h *holdLog) Append(partition int32, claim int64, d *schemas.Delivery, acked func(offset int64)) {
	held := *d
	held.Claim = claim
	h.writer.Write(kafka.Message{
		Topic: h.names.Hold(), Partition: partition, Key: []byte(d.EndpointID), Value: d.Payload, Headers: held.Headers(),
	}, func(w kafka.Written) {
		switch {
		case w.Err == nil:
			acked(w.Offset)
		case errors.Is(w.Err, kafka.ErrTooLarge):
			h.DeadLetter(d, schemas.ReasonTooLarge, func() { acked(-1) })
		}
	})
}

// WriteHealth writes an endpoint's health record, or its tombstone.
// The claim stands in a header, because a tombstone has no other place for it.
func (h *holdLog) WriteHealth(partition int32, claim int64, endpointID string, rec *schemas.Health, acked func()) {
	m := kafka.Message{
		Topic: h.names.Health(), Partition: partition, Key: []byte(endpointID),
		Headers: []schemas.Header{{Key: schemas.HeaderClaim, Value: strconv.AppendInt(nil, claim, 10)}},
	}
	if rec != nil {
		value, err := json.Marshal(rec)
		if err != nil { // numbers, times and short texts: it cannot
			h.log.Error("health record cannot be written", "endpoint_id", endpointID, "err", err)
			return
		}
		m.Value = value
	}
	h.write(m, acked, func() {
		h.refused.note(h.names.Health(), "a health record")
		h.log.Error("health record refused as too large", "endpoint_id", endpointID)
	})
}

// ReadHold reads a part of hold.
func (h *holdLog) ReadHold(ctx context.Context, partition int32, from int64, limit int) (dispatcher.HoldChunk, error) {
	f, err := h.reader.Fetch(ctx, h.names.Hold(), partition, from, int32(limit)) //nolint:gosec // 8 MiB
	if errors.Is(err, kafka.ErrOutOfRange) && from < f.LogStart {
		h.log.Error("records on hold were lost to retention", "partition", partition, "from", from, "to", f.LogStart)
		return dispatcher.HoldChunk{Next: f.LogStart}, nil
	}
	if err != nil {
		return dispatcher.HoldChunk{}, err
	}
	return dispatcher.HoldChunk{Records: f.Records, Next: f.Next, Bytes: f.Bytes}, nil
}
