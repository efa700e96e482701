package verify

import (
	"errors"
	"fmt"
)

// Why a request was refused; use errors.Is. The error itself is an *Error.
var (
	ErrMissingHeader = errors.New("missing header")
	ErrMalformed     = errors.New("malformed")
	ErrStale         = errors.New("too old")
	ErrFuture        = errors.New("from the future")
	ErrNoMatch       = errors.New("no signature matches")
	ErrTooLarge      = errors.New("body too large") // Middleware only
)

// ErrConfig is wrapped by every error of New and Middleware.
var ErrConfig = errors.New("webhook verifier")

// Error is a request that was refused. Its text never holds a secret or a signature.
type Error struct {
	Reason error  // one of the Err… values
	Header string // the header that it is about, where it is one
	Detail string
}

func (e *Error) Error() string {
	s := "webhook refused: " + e.Reason.Error()
	if e.Header != "" {
		s += " " + e.Header
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns Reason.
func (e *Error) Unwrap() error { return e.Reason }

func missing(header string) error { return &Error{Reason: ErrMissingHeader, Header: header} }

func malformed(header, format string, args ...any) error {
	return &Error{Reason: ErrMalformed, Header: header, Detail: fmt.Sprintf(format, args...)}
}

func misconfigured(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
}
