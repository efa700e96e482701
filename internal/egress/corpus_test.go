package egress

import (
	"encoding/csv"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

// corpus reads a file of testdata: comma separated, lines that begin with # are remarks.
func corpus(t testing.TB, name string, fields int) [][]string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment, r.FieldsPerRecord = '#', fields
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// verdict is what comes of a POST to an address literal: through RoundTrip, with a
// dialer that notes what it is asked for and connects to nothing.
func verdict(t testing.TB, addr string) string {
	t.Helper()
	a, err := netip.ParseAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	d := &noDial{}
	e := mustNew(t, Config{AllowHTTP: true, Dial: d.dial})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Host = netip.AddrPortFrom(a, 80).String()
	_, err = e.RoundTripper().RoundTrip(req)
	viaControl := e.guard.control(network(a), netip.AddrPortFrom(a, 80).String(), nil) == nil
	switch {
	case len(d.asked) == 0 && Classify(err) == schemas.ClassBlockedAddress && !viaControl:
		return "blocked"
	case len(d.asked) == 1 && errors.Is(err, errNoDial) && viaControl:
		return "allowed"
	}
	t.Errorf("%s: dialled %v, control allows %v, error %v", addr, d.asked, viaControl, err)
	return "?"
}

func network(a netip.Addr) string {
	if a.Is4() {
		return "tcp4"
	}
	return "tcp6"
}

func TestIANARegistries(t *testing.T) {
	for _, name := range []string{"iana-ipv4-special-registry.csv", "iana-ipv6-special-registry.csv"} {
		rows := corpus(t, name, 8)
		if len(rows) < 25 {
			t.Errorf("%s: %d rows", name, len(rows))
		}
		for _, r := range rows {
			for _, i := range []int{4, 6} {
				if got := verdict(t, r[i]); got != r[i+1] {
					t.Errorf("%s (%s, %s): %s, want %s", r[i], r[0], r[1], got, r[i+1])
				}
			}
		}
	}
}

func TestAddressesBesideTheRegistries(t *testing.T) {
	for _, r := range corpus(t, "addresses.csv", 3) {
		if got := verdict(t, r[0]); got != r[1] {
			t.Errorf("%s (%s): %s, want %s", r[0], r[2], got, r[1])
		}
	}
}

func TestSpellingsAtRegistration(t *testing.T) {
	e := mustNew(t, Config{AllowHTTP: true})
	for _, r := range corpus(t, "spellings.csv", 3) {
		got, err := e.CheckURL(r[0])
		switch {
		case r[1] != "refused" && (err != nil || got != r[1]):
			t.Errorf("%s: %q %v, want %s", r[0], got, err, r[1])
		case r[1] == "refused" && (err == nil || !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), r[2])):
			t.Errorf("%s: %q %v, want a refusal that says %q", r[0], got, err, r[2])
		}
		if err != nil && strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: the error holds the password: %v", r[0], err)
		}
		if err == nil {
			if again, err := e.CheckURL(got); again != got || err != nil {
				t.Errorf("%s: its canonical form %s is not: %q %v", r[0], got, again, err)
			}
		}
	}
}

// What registration refuses must not be sent to either, if it gets into the
// registry by another way.
func TestRefusedSpellingsAreBlockedWhenSentTo(t *testing.T) {
	d := &noDial{}
	e := mustNew(t, Config{AllowHTTP: true, Dial: d.dial, Resolver: everything{}})
	for _, host := range []string{"2130706433", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.1.", "①②⑦.⓪.⓪.①", "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "1.2.3.4.5"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+"/", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.RoundTripper().RoundTrip(req)
		if Classify(err) != schemas.ClassBlockedAddress || len(d.asked) != 0 {
			t.Errorf("%s: dialled %v, %v", host, d.asked, err)
		}
	}
	_, err := post(t, e, "http://example.com:25/", time.Second)
	wantBlocked(t, err)
}

func FuzzCheckURL(f *testing.F) {
	for _, r := range corpus(f, "spellings.csv", 3) {
		f.Add(r[0])
	}
	e, err := New(Config{AllowHTTP: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		canonical, err := e.CheckURL(raw)
		if err != nil {
			if !errors.Is(err, ErrURL) {
				t.Fatalf("%q: an error of another kind: %v", raw, err)
			}
			return
		}
		again, err := e.CheckURL(canonical)
		if err != nil || again != canonical {
			t.Fatalf("%q: canonical %q becomes %q, %v", raw, canonical, again, err)
		}
		// What net/http will make of it must be a place that the guard would pass.
		req, err := http.NewRequest(http.MethodPost, canonical, nil)
		if err != nil {
			t.Fatalf("%q: canonical %q is no request: %v", raw, canonical, err)
		}
		if a, err := netip.ParseAddr(req.URL.Hostname()); err == nil {
			if _, ok := e.guard.addr(a); !ok {
				t.Fatalf("%q: canonical %q holds the address %s", raw, canonical, a)
			}
		}
	})
}
