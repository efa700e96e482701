package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/milena-project/milena/schemas"
)

func dialErr(n syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", n)}
}

func readErr(n syscall.Errno) error {
	return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", n)}
}

func TestClassifyIsByTypeThroughEveryWrapping(t *testing.T) {
	blocked := &BlockedError{Host: "x", Rule: "y"}
	for name, c := range map[string]struct {
		err  error
		want schemas.ErrorClass
	}{
		"nothing":                   {nil, ""},
		"blocked":                   {blocked, schemas.ClassBlockedAddress},
		"blocked at connect":        {&net.OpError{Op: "dial", Err: blocked}, schemas.ClassBlockedAddress},
		"cancelled":                 {context.Canceled, schemas.ClassCancelled},
		"cancelled in DNS":          {&net.DNSError{UnwrapErr: context.Canceled}, schemas.ClassCancelled},
		"deadline":                  {context.DeadlineExceeded, schemas.ClassTimeout},
		"connection deadline":       {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, schemas.ClassTimeout},
		"kernel's connect timeout":  {dialErr(syscall.ETIMEDOUT), schemas.ClassTimeout},
		"refused":                   {dialErr(syscall.ECONNREFUSED), schemas.ClassConnect},
		"host unreachable":          {dialErr(syscall.EHOSTUNREACH), schemas.ClassConnect},
		"reset while connecting":    {dialErr(syscall.ECONNRESET), schemas.ClassConnect},
		"no route at all":           {dialErr(syscall.ENETUNREACH), schemas.ClassLocal},
		"no route, known":           {&LocalError{dialErr(syscall.ENETUNREACH)}, schemas.ClassLocal},
		"no route for that family":  {&UnreachableError{dialErr(syscall.ENETUNREACH)}, schemas.ClassConnect},
		"no descriptors":            {&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}, schemas.ClassLocal},
		"no descriptors, system":    {dialErr(syscall.ENFILE), schemas.ClassLocal},
		"no ports":                  {dialErr(syscall.EADDRNOTAVAIL), schemas.ClassLocal},
		"no buffers":                {dialErr(syscall.ENOBUFS), schemas.ClassLocal},
		"DNS":                       {&net.DNSError{IsNotFound: true}, schemas.ClassDNS},
		"DNS timeout":               {&net.DNSError{IsTimeout: true}, schemas.ClassDNS},
		"certificate":               {x509.UnknownAuthorityError{}, schemas.ClassTLS},
		"TLS":                       {&TLSError{Err: io.EOF}, schemas.ClassTLS},
		"proxy":                     {&ProxyError{Err: dialErr(syscall.ECONNREFUSED)}, schemas.ClassProxy},
		"proxy, timeout":            {&ProxyError{Err: context.DeadlineExceeded}, schemas.ClassProxy},
		"reset":                     {readErr(syscall.ECONNRESET), schemas.ClassReset},
		"broken pipe":               {readErr(syscall.EPIPE), schemas.ClassReset},
		"end":                       {io.EOF, schemas.ClassReset},
		"unexpected end":            {io.ErrUnexpectedEOF, schemas.ClassReset},
		"protocol":                  {&ProtocolError{"x"}, schemas.ClassProtocol},
		"HTTP/2 reset":              {http2.StreamError{Code: http2.ErrCodeCancel}, schemas.ClassReset},
		"HTTP/2 broken rules":       {http2.ConnectionError(http2.ErrCodeFlowControl), schemas.ClassProtocol},
		"HTTP/2 GOAWAY":             {http2.GoAwayError{}, schemas.ClassReset}, //nolint:staticcheck // see configureH2
		"our request":               {&RequestError{Header: "x"}, schemas.ClassInternal},
		"something else":            {errors.New("connection reset by peer"), schemas.ClassInternal}, // the text decides nothing
		"transport, bare":           {&TransportError{errors.New("x")}, schemas.ClassReset},
		"transport, about the data": {&TransportError{fmt.Errorf("x: %w", errors.New("y"))}, schemas.ClassProtocol},
	} {
		for how, err := range map[string]error{"bare": c.err, "as http.Client wraps": &url.Error{Op: "Post", URL: "x", Err: c.err}, "marked": &TransportError{c.err}, "in text": fmt.Errorf("attempt: %w", c.err)} {
			if c.err == nil && how != "bare" || name == "something else" && how == "marked" {
				continue
			}
			if name == "transport, bare" && how == "marked" {
				continue // RoundTrip marks once
			}
			if got := Classify(err); got != c.want {
				t.Errorf("%s, %s: %q, want %q", name, how, got, c.want)
			}
		}
	}
}

func TestARequestThatCannotBeWrittenIsInternal(t *testing.T) {
	e := mustNew(t, local())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header["X-Forwarded"] = []string{"a\nb"}
	_, err = e.RoundTripper().RoundTrip(req)
	wantClass(t, err, schemas.ClassInternal)
	req.Header = http.Header{"Idempotency-Key": {"1"}}
	_, err = e.RoundTripper().RoundTrip(req)
	wantClass(t, err, schemas.ClassInternal)
}

func TestNoRouteIsOursOnlyWhenThereIsNoneAtAll(t *testing.T) {
	for _, routed := range []bool{true, false} {
		e := mustNew(t, Config{Resolver: names{"six.example": addrs("2606:4700:4700::1111")},
			Dial: func(context.Context, string, string) (net.Conn, error) { return nil, dialErr(syscall.ENETUNREACH) }})
		e.anyRoute = func() bool { return routed }
		_, err := post(t, e, "https://six.example/", time.Second)
		wantClass(t, err, map[bool]schemas.ErrorClass{true: schemas.ClassConnect, false: schemas.ClassLocal}[routed])
	}
}

// lab is a network of addresses that answer after a time, or fail.
type lab struct {
	delay map[string]time.Duration
	fail  map[string]error

	mu    sync.Mutex
	asked []string
	open  int
}

type labConn struct {
	net.Conn
	l    *lab
	once sync.Once
}

func (c *labConn) Close() error {
	c.once.Do(func() { c.l.mu.Lock(); c.l.open--; c.l.mu.Unlock() })
	return nil
}

func (l *lab) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	l.mu.Lock()
	l.asked = append(l.asked, host)
	l.mu.Unlock()
	select {
	case <-time.After(l.delay[host]):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := l.fail[host]; err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.open++
	l.mu.Unlock()
	return &labConn{l: l}, nil
}

func TestAddressesOfANameAreTriedAsHappyEyeballsSays(t *testing.T) {
	six, four, four2 := "2606:4700:4700::1111", "1.1.1.1", "8.8.8.8"
	for name, c := range map[string]struct {
		lab   *lab
		took  time.Duration
		asked []string
		err   bool
	}{
		"the first answers":           {&lab{}, 0, []string{six}, false},
		"the first is slow":           {&lab{delay: map[string]time.Duration{six: 5 * time.Second, four: 10 * time.Millisecond}}, stagger + 10*time.Millisecond, []string{six, four}, false},
		"the first fails at once":     {&lab{fail: map[string]error{six: dialErr(syscall.ENETUNREACH)}}, 0, []string{six, four}, false},
		"only the last answers":       {&lab{fail: map[string]error{six: dialErr(syscall.ECONNREFUSED), four: dialErr(syscall.ECONNREFUSED)}}, 0, []string{six, four, four2}, false},
		"none answers":                {&lab{fail: map[string]error{six: dialErr(syscall.ENETUNREACH), four: dialErr(syscall.ECONNREFUSED), four2: dialErr(syscall.ECONNREFUSED)}}, 0, []string{six, four, four2}, true},
		"two answer at the same time": {&lab{delay: map[string]time.Duration{six: stagger + time.Millisecond, four: time.Millisecond}}, stagger + time.Millisecond, []string{six, four}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := New(Config{Dial: c.lab.dial, Resolver: names{"x.example": addrs(six, four, four2)}})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				conn, err := e.dial(t.Context(), "tcp", "x.example:443")
				if took := time.Since(start); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				if (err != nil) != c.err {
					t.Fatal(err)
				}
				if err != nil {
					wantClass(t, err, schemas.ClassConnect) // what refused says more than what has no route
				} else {
					conn.Close()
				}
				synctest.Wait()
				c.lab.mu.Lock()
				defer c.lab.mu.Unlock()
				if fmt.Sprint(c.lab.asked) != fmt.Sprint(c.asked) {
					t.Errorf("asked %v, want %v", c.lab.asked, c.asked)
				}
				if c.lab.open != 0 || e.Open() != 0 {
					t.Errorf("%d connections left open, %d counted", c.lab.open, e.Open())
				}
			})
		})
	}
}

func TestAddressesOfANameAreBounded(t *testing.T) {
	var list []netip.Addr
	for i := range byte(60) {
		list = append(list, netip.AddrFrom4([4]byte{8, 8, 8, i}))
	}
	l := &lab{fail: map[string]error{}}
	for _, a := range list {
		l.fail[a.String()] = dialErr(syscall.ECONNREFUSED)
	}
	e := mustNew(t, Config{Dial: l.dial, Resolver: names{"x.example": list}})
	_, err := post(t, e, "https://x.example", time.Minute)
	wantClass(t, err, schemas.ClassConnect)
	if len(l.asked) != maxTried {
		t.Errorf("%d addresses were tried, want %d", len(l.asked), maxTried)
	}
}
