package dlq

import (
	"time"

	"github.com/milena-project/milena/schemas"
)

// Row is what is said of a letter in a list: all but payload and headers.
type Row struct {
	DeliveryID   string              `json:"delivery_id"`
	Generation   int                 `json:"generation"`
	EndpointID   string              `json:"endpoint_id"`
	Reason       schemas.Reason      `json:"reason"`
	Status       int                 `json:"status,omitempty"`
	ErrorClass   schemas.ErrorClass  `json:"error_class,omitempty"`
	Error        string              `json:"error,omitempty"`
	Attempts     int                 `json:"attempts"`
	Enqueued     time.Time           `json:"enqueued_at,omitzero"`
	FirstAttempt time.Time           `json:"first_attempt_at,omitzero"`
	DiedAt       time.Time           `json:"died_at"` // its last attempt, if it had one
	MessageID    string              `json:"message_id"`
	EventID      string              `json:"event_id"`
	Source       string              `json:"source"`
	Type         string              `json:"type"`
	Subject      string              `json:"subject,omitempty"`
	Tenant       string              `json:"tenant,omitempty"`
	ContentType  string              `json:"content_type,omitempty"`
	Run          string              `json:"run,omitempty"` // that began this life
	ResendOf     string              `json:"resend_of,omitempty"`
	SameWay      bool                `json:"died_the_same_way,omitempty"`
	Size         int                 `json:"payload_bytes"`
	Payload      schemas.PayloadMark `json:"payload,omitempty"` // null or omitted
	Written      time.Time           `json:"written_at"`
	Partition    int32               `json:"partition"`
	Offset       int64               `json:"offset"`
}

// Row describes the letter.
func (e *Entry) Row() Row {
	return Row{DeliveryID: e.ID(), Generation: e.Generation, EndpointID: e.EndpointID, Reason: e.Reason, Status: e.LastStatus,
		ErrorClass: e.ErrorClass, Error: e.Error, Attempts: e.Attempt, Enqueued: e.Enqueued, FirstAttempt: e.FirstAttempt, DiedAt: e.DiedAt,
		MessageID: e.MessageID(), EventID: e.Event.ID, Source: e.Event.Source, Type: e.Event.Type, Subject: e.Event.Subject, Tenant: e.Event.Tenant,
		ContentType: e.Event.ContentType, Run: e.Run, ResendOf: e.ResendOf, SameWay: e.SameWay, Size: e.Size, Payload: e.Mark,
		Written: e.Written, Partition: e.Partition, Offset: e.Offset}
}
