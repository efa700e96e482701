package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { testkit.VerifyMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// local is a configuration that may connect to this machine.
func local() Config { return Config{AllowCIDRs: loopback, AllowHTTP: true} }

func mustNew(t testing.TB, cfg Config) *Egress {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A connection is idle a moment after its answer was read, not at once.
		for end := time.Now().Add(time.Minute); e.Open() > 0 && time.Now().Before(end); <-time.After(time.Millisecond) {
			e.CloseIdle()
		}
	})
	return e
}

// deadline is for an attempt that comes to that class: long enough for whatever does
// not run into it on a machine of any speed.
func deadline(class schemas.ErrorClass) time.Duration {
	if class == schemas.ClassTimeout {
		return 2 * time.Second
	}
	return time.Minute
}

// post sends one POST and reads the answer; status is 0 when there was an error.
func post(t testing.TB, e *Egress, url string, timeout time.Duration) (status int, err error) {
	t.Helper()
	return postBody(t, e, url, `{"a":1}`, timeout)
}

func postBody(t testing.TB, e *Egress, url, body string, timeout time.Duration) (status int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body)) // sets GetBody
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.RoundTripper().RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 16<<10))
	return resp.StatusCode, nil
}

func wantClass(t testing.TB, err error, want schemas.ErrorClass) {
	t.Helper()
	if got := Classify(err); got != want {
		t.Errorf("class %q, want %q: %T %v", got, want, err, err)
	}
}

func wantBlocked(t testing.TB, err error) *BlockedError {
	t.Helper()
	wantClass(t, err, schemas.ClassBlockedAddress)
	var b *BlockedError
	if !errors.As(err, &b) {
		t.Fatalf("not a BlockedError: %v", err)
	}
	return b
}

// names is a resolver with fixed answers.
type names map[string][]netip.Addr

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if a, ok := n[host]; ok {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

var errNoDial = errors.New("this test connects to nothing")

// noDial notes where a connection was about to go.
type noDial struct{ asked []string }

func (d *noDial) dial(_ context.Context, _, addr string) (net.Conn, error) {
	d.asked = append(d.asked, addr)
	return nil, errNoDial
}

// everything resolves all names to a public address: the worst resolver for us.
type everything struct{}

func (everything) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return addrs("8.8.8.8"), nil
}
