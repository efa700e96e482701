package lag

import (
	"time"

	"github.com/milena-project/milena/schemas"
)

// Report is one look at an installation.
type Report struct {
	At      time.Time `json:"at"`
	State   State     `json:"state"`  // the most urgent of all
	Oldest  *Age      `json:"oldest"` // the oldest record that is ready and not settled; null: there is none
	Topics  []Topic   `json:"topics"`
	Hold    Hold      `json:"hold"`
	Letters *Letters  `json:"dead_letters"` // null: they are not counted

	NotCounted string `json:"dead_letters_not_counted,omitempty"` // why
}

// Age is how old what is.
type Age struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Since     time.Time `json:"since"`
	Seconds   float64   `json:"seconds"`
}

// Topic is what is left to do of a topic that a group reads.
type Topic struct {
	Topic      string      `json:"topic"`
	Group      string      `json:"group"`
	Members    int         `json:"members"`
	State      State       `json:"state"` // of its worst partition
	Unfinished int64       `json:"unfinished"`
	Waiting    int64       `json:"waiting"`
	Overdue    int64       `json:"overdue"`
	Exact      bool        `json:"exact"`
	Oldest     *time.Time  `json:"oldest_ready,omitempty"`
	Partitions []Partition `json:"partitions"`

	id [16]byte
}

// Hold is what is on hold, as the owners of the partitions wrote it last into health.
type Hold struct {
	Topic     string         `json:"topic"`
	Records   int64          `json:"records"`
	Since     *time.Time     `json:"since,omitempty"` // what has been there longest; absent: nothing is, or nobody said
	AsOf      *time.Time     `json:"as_of,omitempty"` // the oldest of the records that say it
	Endpoints []HeldEndpoint `json:"endpoints"`       // the most held first
}

// HeldEndpoint is an endpoint that has something on hold.
type HeldEndpoint struct {
	Endpoint string    `json:"endpoint_id"`
	Records  int       `json:"records"`
	AsOf     time.Time `json:"as_of"`
}

// Letters are the dead letters that nobody has replayed or discarded.
type Letters struct {
	Topic    string                   `json:"topic"`
	Open     int64                    `json:"open"`
	ByReason map[schemas.Reason]int64 `json:"by_reason"`
	Oldest   *time.Time               `json:"oldest,omitempty"`
	Expires  *time.Time               `json:"oldest_expires,omitempty"` // by the topic's retention
}

// judge sums the partitions up.
func (t *Topic) judge() {
	t.State, t.Unfinished, t.Waiting, t.Overdue, t.Exact, t.Oldest = OK, 0, 0, 0, true, nil
	for i := range t.Partitions {
		p := &t.Partitions[i]
		t.State = t.State.Worse(p.State)
		t.Unfinished += p.Unfinished
		t.Waiting += p.Waiting
		t.Overdue += p.Overdue
		t.Exact = t.Exact && p.Exact
		if p.Oldest != nil && (t.Oldest == nil || p.Oldest.Before(*t.Oldest)) {
			t.Oldest = p.Oldest
		}
	}
}

// Judge sums the topics up; it is called again after a Watch has looked.
func (r *Report) Judge() {
	r.State, r.Oldest = OK, nil
	for i := range r.Topics {
		t := &r.Topics[i]
		r.State = r.State.Worse(t.State)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.Oldest != nil && (r.Oldest == nil || p.Oldest.Before(r.Oldest.Since)) {
				r.Oldest = &Age{t.Topic, p.Partition, *p.Oldest, r.At.Sub(*p.Oldest).Seconds()}
			}
		}
	}
}

// OlderThan reports whether something has been ready for longer than that.
func (r *Report) OlderThan(limit time.Duration) bool {
	return r.Oldest != nil && r.At.Sub(r.Oldest.Since) > limit
}
