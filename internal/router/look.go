package router

import (
	"time"

	"github.com/milena-project/milena/schemas"
)

// Seen is one source record and what the router would do with it.
type Seen struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"` // of the record
	EventID   string    `json:"event_id,omitempty"`
	Source    string    `json:"source,omitempty"`
	Type      string    `json:"type,omitempty"`
	Tenant    string    `json:"tenant,omitempty"`
	Subject   string    `json:"subject,omitempty"`
	MessageID string    `json:"message_id,omitempty"`
	Bytes     int       `json:"bytes"`               // of payload
	Endpoints []string  `json:"endpoints"`           // which get it; empty: nobody subscribes, it is only counted
	Malformed string    `json:"malformed,omitempty"` // why it would be a dead letter
	Tombstone bool      `json:"tombstone,omitempty"` // it is no event: passed over and counted
}

// Look says what the router would do with rec. It writes nothing.
func Look(rec schemas.Record, m Mapping, match func(tenant, eventType string) []*schemas.Endpoint) Seen {
	s := Seen{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Time: rec.Timestamp.UTC(),
		Bytes: len(rec.Value), Endpoints: []string{}}
	if s.Tombstone = IsTombstone(&rec); s.Tombstone {
		return s
	}
	d, err := m.Read(rec)
	e := &d.Event
	s.EventID, s.Source, s.Type, s.Tenant, s.Subject = e.ID, e.Source, e.Type, e.Tenant, e.Subject
	if err != nil {
		s.Malformed = err.Error()
		return s
	}
	s.MessageID = d.MessageID()
	for _, ep := range match(e.Tenant, e.Type) {
		s.Endpoints = append(s.Endpoints, ep.ID)
	}
	return s
}
