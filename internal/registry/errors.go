package registry

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is.
var (
	ErrNotFound   = errors.New("no such endpoint")
	ErrExists     = errors.New("the endpoint id is taken; ids are never used again, not even after a deletion")
	ErrConflict   = errors.New("the endpoint was changed by someone else meanwhile")
	ErrTimeout    = errors.New("gave up waiting for Kafka") // what was written is told by *UnknownOutcomeError
	ErrClosed     = errors.New("registry: closed")
	ErrNotReached = errors.New("registry: the topic has not been read yet")
	ErrSealed     = errors.New("sealed text is damaged")
)

// ValidationError is a refused field: which one, what it held and what would be right.
type ValidationError struct {
	Field  string // path as in JSON, such as rate_limit.rate or headers[2].name
	Value  string
	Remedy string
}

func (e *ValidationError) Error() string {
	return fmt.Sprintf("%s: %q is refused: %s", e.Field, e.Value, e.Remedy)
}

// ConflictError is an ErrConflict with both versions.
type ConflictError struct {
	ID         string
	Have, Want int64 // Have is the registered version, Want the one that the caller had seen
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("endpoint %s: %v: it is at version %d, the change was made for version %d; read it again and repeat",
		e.ID, ErrConflict, e.Have, e.Want)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// UnreadableError is a record of an endpoint that is none: another writer than Milena
// put it there. A process that had read the endpoint before goes on with what it knows.
type UnreadableError struct {
	Key    string
	Offset int64 // in partition 0, the only one
	Err    error
}

func (e *UnreadableError) Error() string {
	remedy := "write a tombstone for that key"
	if ValidID(e.Key) {
		remedy = "milena endpoint delete " + e.Key + " takes it out"
	}
	return fmt.Sprintf("the record of endpoint %.80q (partition 0, offset %d of the registry) is unreadable: %v; put it right where it was written, or %s",
		e.Key, e.Offset, e.Err, remedy)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// UnknownOutcomeError says that time ran out between a write and its confirmation:
// the change may have been made or not, and reading the endpoint will tell. It is
// also an ErrTimeout.
type UnknownOutcomeError struct{ Err error }

func (e *UnknownOutcomeError) Error() string {
	return "the change was sent but not confirmed, it may have been made or not; read the endpoint to see: " + e.Err.Error()
}

func (e *UnknownOutcomeError) Unwrap() []error { return []error{ErrTimeout, e.Err} }

// MissingKeyError says that a live secret cannot be opened with the configured key
// ring. A process that meets it when it starts refuses to start: it could not sign.
type MissingKeyError struct {
	KeyID      string
	EndpointID string // one of those that need it
	Wrong      bool   // a key of that id is there, but it is another key
}

func (e *MissingKeyError) Error() string {
	if e.Wrong {
		return fmt.Sprintf("the secrets of endpoint %s are sealed with key %q, and the key %q of the key ring is another one; give the key ring that sealed them",
			e.EndpointID, e.KeyID, e.KeyID)
	}
	return fmt.Sprintf("the secrets of endpoint %s are sealed with key %q, which is not in the key ring; add the key (entries id:base64)",
		e.EndpointID, e.KeyID)
}

// SealedError is an ErrSealed: the key that bears the id does not open it. The key ring
// serves other endpoints, or the process would not have started, so this one needs a
// secret that is sealed with it.
type SealedError struct{ KeyID, EndpointID string }

func (e *SealedError) Error() string {
	return fmt.Sprintf("what is sealed with key %q for endpoint %s does not open: another key of that id sealed it, or it is damaged; "+
		"make it anew: milena endpoint rotate-secret %s --overlap 0s (endpoint update for a password, token or client key)", e.KeyID, e.EndpointID, e.EndpointID)
}

func (e *SealedError) Unwrap() error { return ErrSealed }
