package egress

import (
	"fmt"
	"net/netip"
)

// BlockedError says that the guard refused a connection; nothing was sent. It is
// reachable with errors.As through whatever net/http wraps around it.
type BlockedError struct {
	Host string     // as it stood in the URL
	Addr netip.Addr // the address that was refused; zero when the host's or the port's form was
	Rule string     // such as "10.0.0.0/8 (private use)"
}

func (e *BlockedError) Error() string {
	if !e.Addr.IsValid() || e.Addr.String() == e.Host {
		return fmt.Sprintf("connection to %s is not allowed: %s", e.Host, e.Rule)
	}
	return fmt.Sprintf("connection to %s is not allowed: it resolves to %s, in %s", e.Host, e.Addr, e.Rule)
}

// ProxyError is a fault of the forward proxy, or of the way to it. It says nothing
// about the endpoint.
type ProxyError struct {
	Proxy  string // host and port
	Status int    // of the answer to CONNECT; 0: none
	Why    string
	Err    error // may be nil

	answered bool // the proxy works and said no
}

func (e *ProxyError) Error() string {
	s := "forward proxy " + e.Proxy + ": " + e.Why
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *ProxyError) Unwrap() error { return e.Err }

// TLSError is a TLS handshake that failed. Why is a sentence for the endpoint's
// owner.
type TLSError struct {
	Host string
	Why  string
	Err  error
}

func (e *TLSError) Error() string { return "TLS with " + e.Host + ": " + e.Why }
func (e *TLSError) Unwrap() error { return e.Err }

// LocalError is a fault of this machine: no descriptors, no ports, no route.
type LocalError struct{ Err error }

func (e *LocalError) Error() string { return "this machine: " + e.Err.Error() }
func (e *LocalError) Unwrap() error { return e.Err }

// UnreachableError says that this machine has no route to the address family of
// an endpoint while it has one to the other: the endpoint's choice, not our outage.
type UnreachableError struct{ Err error }

func (e *UnreachableError) Error() string {
	return e.Err.Error() + " (this machine has no route for that kind of address)"
}
func (e *UnreachableError) Unwrap() error { return e.Err }

// ProtocolError is an answer that is no HTTP, or not one that a POST may get.
type ProtocolError struct{ Why string }

func (e *ProtocolError) Error() string { return "protocol: " + e.Why }

// TransportError marks an error of net/http's transport that has no type of its own.
type TransportError struct{ Err error }

func (e *TransportError) Error() string { return e.Err.Error() }
func (e *TransportError) Unwrap() error { return e.Err }

// RequestError is a request that cannot or must not be sent as it is.
type RequestError struct {
	Header string
	Why    string
}

func (e *RequestError) Error() string { return fmt.Sprintf("request header %q %s", e.Header, e.Why) }
