package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"syscall"

	"golang.org/x/net/http2"

	"github.com/milena-project/milena/schemas"
)

// Classify sorts an error of RoundTripper, or of reading a response's body, into
// the closed set of classes. It looks at types and values only, never at texts.
// nil is the empty class.
func Classify(err error) schemas.ErrorClass {
	if err == nil {
		return ""
	}
	// What we decided or did ourselves comes first: these errors wrap causes that
	// would be the endpoint's if they stood alone.
	if is[*BlockedError](err) {
		return schemas.ClassBlockedAddress
	}
	if errors.Is(err, context.Canceled) {
		return schemas.ClassCancelled
	}
	if is[*ProxyError](err) {
		return schemas.ClassProxy
	}
	if is[*LocalError](err) || isLocal(err) {
		return schemas.ClassLocal
	}
	if is[*UnreachableError](err) {
		return schemas.ClassConnect
	}
	if isNoRoute(err) {
		return schemas.ClassLocal
	}
	// A name server that does not answer in time is DNS's fault, also when it used
	// up the attempt's deadline.
	if is[*net.DNSError](err) {
		return schemas.ClassDNS
	}
	if isTLS(err) {
		return schemas.ClassTLS
	}
	if isTimeout(err) {
		return schemas.ClassTimeout
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return schemas.ClassConnect
	}
	if isReset(err) {
		return schemas.ClassReset
	}
	return classifyHTTP(err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isLocal: this machine is out of something. The endpoint had no part in it.
func isLocal(err error) bool {
	for _, n := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, n) {
			return true
		}
	}
	return false
}

// isTLS also knows an alert that comes after the handshake: with TLS 1.3 a client
// certificate is refused, or missed, when the request has been sent already.
func isTLS(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "remote error" || op.Op == "local error") {
		return true // crypto/tls's: an alert of the peer's, or of ours
	}
	return is[*TLSError](err) || is[*tls.CertificateVerificationError](err) || is[tls.RecordHeaderError](err) || is[tls.AlertError](err) ||
		is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err)
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// isReset: the connection ended under the request. Whether the server has
// processed it is not known.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

// classifyHTTP sorts what net/http has no exported type for. Its errors about an
// answer that cannot be read arrive wrapped ("connection broken: malformed …");
// those about a connection that the peer closed before an answer began (closed
// idle, HTTP/2 GOAWAY) are bare values.
func classifyHTTP(err error) schemas.ErrorClass {
	if is[*ProtocolError](err) || is[textproto.ProtocolError](err) || is[*http.ProtocolError](err) { //nolint:staticcheck // deprecated, and still what net/http returns for some
		return schemas.ClassProtocol
	}
	if s, ok := errors.AsType[http2.StreamError](err); ok {
		if s.Code == http2.ErrCodeProtocol {
			return schemas.ClassProtocol // one side says that the other broke the rules
		}
		return schemas.ClassReset
	}
	if c, ok := errors.AsType[http2.ConnectionError](err); ok && http2.ErrCode(c) != http2.ErrCodeNo {
		return schemas.ClassProtocol
	}
	if is[http2.GoAwayError](err) { //nolint:staticcheck // see configureH2
		return schemas.ClassReset
	}
	if is[*RequestError](err) {
		return schemas.ClassInternal
	}
	if is[*net.OpError](err) {
		return schemas.ClassReset // reading or writing failed in a way of its own
	}
	t, ok := errors.AsType[*TransportError](err)
	if !ok {
		return schemas.ClassInternal
	}
	depth := 0
	for u := errors.Unwrap(t.Err); u != nil; u = errors.Unwrap(u) {
		depth++
	}
	if depth > 0 {
		return schemas.ClassProtocol
	}
	return schemas.ClassReset
}
