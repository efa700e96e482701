package flowtest

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// unroutable is a public address to which connections fail as the test says.
const unroutable = "8.8.4.4:"

// addresses are places that a URL can lead to. trap is the URL of a receiver on this
// machine that nothing may reach under another name than its own.
func (h *hostile) addresses(trap string) (cases []receiverCase) {
	port := trap[strings.LastIndexByte(trap, ':'):]
	for name, host := range map[string]string{
		"loopback":       "127.0.0.1",
		"loopback-other": "127.1.2.3",
		"loopback-6":     "[::1]",
		"any":            "0.0.0.0",
		"any-6":          "[::]",
		"mapped":         "[::ffff:127.0.0.1]",
		"mapped-hex":     "[::ffff:7f00:1]",
		"nat64":          "[64:ff9b::7f00:1]",
		"6to4":           "[2002:7f00:1::]",
		"teredo":         "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
		"decimal":        "2130706433",
		"hex":            "0x7f.1",
		"hex-whole":      "0x7f000001",
		"octal":          "0177.0.0.1",
		"short":          "127.1",
		"metadata":       "169.254.169.254",
		"metadata-6":     "[fd00:ec2::254]",
		"metadata-name":  "metadata.example",
		"alibaba":        "100.100.100.200",
		"private-10":     "10.0.0.1",
		"private-172":    "172.16.0.1",
		"private-192":    "192.168.0.1",
		"broadcast":      "255.255.255.255",
		"multicast":      "224.0.0.1",
		"localhost":      "localhost",
		"inside":         "inside.example",
		"mixed":          "mixed.example",
		"rebinding":      "rebinding.example",
		"mapped-answer":  "mapped.example",
		"trailing-dot":   "127.0.0.1.",
	} {
		cases = append(cases, receiverCase{name: "blocked-" + name, url: "http://" + host + port,
			outcome: schemas.OutcomeDead, reason: schemas.ReasonBlockedAddress, class: schemas.ClassBlockedAddress})
	}
	h.resolve("metadata.example", resolvesTo("169.254.169.254"))
	h.resolve("inside.example", resolvesTo("10.0.0.1"))
	h.resolve("mixed.example", resolvesTo("8.8.8.8", "10.0.0.1"))
	h.resolve("rebinding.example", resolvesTo("127.0.0.1"))
	h.resolve("mapped.example", resolvesTo("::ffff:127.0.0.1"))
	h.resolve("localhost", resolvesTo("127.0.0.1", "::1"))

	h.resolve("servfail.example", failsWith(&net.DNSError{Err: "server misbehaving", Name: "servfail.example", IsTemporary: true}))
	h.resolve("dns-timeout.example", failsWith(&net.DNSError{Err: "i/o timeout", Name: "dns-timeout.example", IsTimeout: true, IsTemporary: true}))
	h.resolve("empty.example", resolvesTo())
	for _, name := range []string{"nxdomain", "servfail", "dns-timeout", "empty"} {
		cases = append(cases, receiverCase{name: name, url: "http://" + name + ".example:8080/", class: schemas.ClassDNS, says: name})
	}
	h.resolve("far.example", resolvesTo("8.8.4.4"))
	for p, c := range map[string]receiverCase{
		"1025": {name: "no-route-to-host", says: "no route to host"},
		"1026": {name: "refused-far", says: "connection refused"},
		"1027": {name: "reset-at-once", says: "reset"},
	} {
		c.url, c.class = "http://far.example:"+p+"/", schemas.ClassConnect
		cases = append(cases, c)
	}
	h.refuse(unroutable+"1025", syscall.EHOSTUNREACH)
	h.refuse(unroutable+"1026", syscall.ECONNREFUSED)
	h.refuse(unroutable+"1027", syscall.ECONNRESET)
	return append(cases,
		receiverCase{name: "refused-port", url: fmt.Sprintf("http://%s:%d/", receiverHost, testkit.ReservePort(h.t)), class: schemas.ClassConnect, says: "refused"},
		receiverCase{name: "port-22", url: "http://" + receiverHost + ":22/", outcome: schemas.OutcomeDead,
			reason: schemas.ReasonBlockedAddress, class: schemas.ClassBlockedAddress, says: "port 22"},
	)
}

// What can be seen at registration is refused there, and says what would be right.
func TestHostileURLsAndHeadersAreRefusedAtRegistration(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	h.strictAdmin()
	create := func(edit func(*registry.Endpoint)) error {
		ep := registry.Endpoint{ID: "ep-" + random(), URL: "https://shop.example/hook", EventTypes: []string{"*"}}
		edit(&ep)
		_, err := h.admin.Create(t.Context(), registry.Actor{Who: "test", Door: "test"}, ep)
		return err
	}
	for url, says := range map[string]string{
		"http://127.0.0.1/":                "not allowed",
		"http://[::1]/":                    "not allowed",
		"http://0.0.0.0/":                  "not allowed",
		"http://[::]/":                     "not allowed",
		"http://[::ffff:127.0.0.1]/":       "",
		"http://2130706433/":               "",
		"http://0x7f.1/":                   "",
		"http://127.1/":                    "",
		"http://0177.0.0.1/":               "",
		"http://169.254.169.254/":          "not allowed",
		"http://localhost/":                "this machine",
		"http://a.localhost/":              "this machine",
		"https://user:pass@shop.example/":  "auth",
		"https://shop.example@127.0.0.1/":  "auth",
		"https://shop.example/#fragment":   "fragment",
		"https://shop.example/a b":         "percent-encode",
		"https://shop.example/\r\nX: y":    "",
		"https://shop.example\\@10.0.0.1/": "",
		"https://127.0.0.1%2f.example/":    "",
		"https://shop.example:22/":         "port",
		"https://shop.example:0/":          "port",
		"https://[fe80::1%25eth0]/":        "",
		"ftp://shop.example/":              "scheme",
		"file:///etc/passwd":               "scheme",
		"//shop.example/":                  "scheme",
		"https:///path":                    "host",
		"":                                 "",
	} {
		err := create(func(ep *registry.Endpoint) { ep.URL = url })
		if err == nil {
			t.Errorf("%q was registered", url)
		} else if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), ":pass") {
			t.Errorf("%q is refused with %q, which does not say %q", url, err, says)
		}
	}
	for _, name := range []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "webhook-signature", "Webhook-Id",
		"webhook-timestamp", "Idempotency-Key", "Accept-Encoding", "TE", "Upgrade", "Expect", "Trailer", "ce-id", "milena-attempt",
		"Proxy-Authorization", "User-Agent", "Content-Type", "X\r\nY", "", "a b", "ünïcode"} {
		if create(func(ep *registry.Endpoint) { ep.Headers = append(ep.Headers, schemas.Pair{Name: name, Value: "x"}) }) == nil {
			t.Errorf("the header %q was registered", name)
		}
	}
	for _, value := range []string{"a\r\nX: y", "a\nb", "\x00", "\xff"} {
		if create(func(ep *registry.Endpoint) {
			ep.Headers = append(ep.Headers, schemas.Pair{Name: "X-Own", Value: value})
		}) == nil {
			t.Errorf("a header of %q was registered", value)
		}
	}
}

// One place has one spelling in the registry, however it was given.
func TestAURLIsRegisteredInItsOneCanonicalForm(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	h.strictAdmin()
	for i, c := range [][2]string{
		{"HTTPS://Shop.EXAMPLE/Hook", "https://shop.example/Hook"},
		{"https://shop.example", "https://shop.example/"},
		{"https://shop.example:443/a?b=c", "https://shop.example/a?b=c"},
		{"https://shop.example.:8443/a", "https://shop.example:8443/a"},
		{"https://bücher.example/a", "https://xn--bcher-kva.example/a"},
		{"https://BÜCHER.example:443", "https://xn--bcher-kva.example/"},
		{"https://[2606:4700:4700:0:0:0:0:1111]/", "https://[2606:4700:4700::1111]/"},
		{"https://shop.example/ä?q=ö", "https://shop.example/%C3%A4?q=%C3%B6"},
	} {
		ep := registry.Endpoint{ID: "canonical" + string(rune('a'+i)), URL: c[0], EventTypes: []string{"*"}}
		res, err := h.admin.Create(t.Context(), registry.Actor{Who: "test", Door: "test"}, ep)
		if err != nil {
			t.Errorf("%s: %v", c[0], err)
			continue
		}
		if res.Endpoint.URL != c[1] {
			t.Errorf("%s is registered as %s, not %s", c[0], res.Endpoint.URL, c[1])
		}
	}
}
