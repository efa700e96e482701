package flowtest

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// nothingWasCounted demands that every delivery came at its first attempt, and that
// no breaker moved: what went wrong was not the endpoints'.
func (h *hostile) nothingWasCounted(p *process) {
	h.t.Helper()
	for id, history := range h.attempts() {
		if len(history) != 1 || history[0].Outcome != schemas.OutcomeDelivered || history[0].Number != 1 {
			h.t.Errorf("%s has %d attempt records, the first %s of attempt %d", id, len(history), history[0].Outcome, history[0].Number)
		}
	}
	if moved := metric(h.t, p.app, "milena_breaker_transitions_total"); moved != 0 {
		h.t.Errorf("breakers moved %v times", moved)
	}
	h.once()
}

// proxyScript is a forward proxy: it answers CONNECT with what answer says, and when
// that is a 200 it carries the bytes to the receiver.
func proxyScript(answer func() string) func(*testkit.RawConn) {
	return func(c *testkit.RawConn) {
		req, _, err := c.ReadRequest()
		if err != nil || req.Method != "CONNECT" {
			return
		}
		text := answer()
		if text == "" || c.Say(text) != nil || !strings.HasPrefix(text, "HTTP/1.1 200") {
			return
		}
		out, err := net.Dial("tcp", req.Host)
		if err != nil {
			return
		}
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(out, c)
			_ = out.Close()
		}()
		_, _ = io.Copy(c.Conn, out)
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		<-gone // the client has noticed and has closed its side
	}
}

// The forward proxy's faults are not an endpoint's.
func TestAProxyThatFailsCostsNoAttempt(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	h.opts.Egress = nil
	const works = "HTTP/1.1 200 OK\r\n\r\n"
	var answer atomic.Value
	answer.Store(works)
	proxy := testkit.NewRawReceiver(t, nil, proxyScript(func() string { return answer.Load().(string) }))
	ids := h.endpoints(6)
	useProxy := func(c *config.Config) {
		c.Egress.Proxy = proxy.URL("")
		c.Egress.AllowCIDRs = loopbackOnly
	}
	p := h.start(useProxy)
	h.ready(p)
	h.send(1, 200, ids...)
	h.delivered(30 * time.Second)
	for _, fault := range []string{
		"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
		"", // it closes the connection
	} {
		answer.Store(fault)
		before := metric(t, p.app, "milena_interrupted_total")
		h.receiver.CloseIdle(t)
		testkit.Eventually(t, 30*time.Second, func() string { // every tunnel is gone for the client too: each request needs a new one
			if n := proxy.Open(); n > 0 {
				return fmt.Sprintf("%d tunnels are open", n)
			}
			return ""
		})
		h.send(2, 200, ids...)
		testkit.Eventually(t, 30*time.Second, func() string {
			if metric(t, p.app, "milena_interrupted_total") == before {
				return "nothing was interrupted by " + strconv.Quote(fault)
			}
			return ""
		})
		answer.Store(works)
		h.delivered(time.Minute)
	}
	h.settled(20 * time.Second)
	if n := metricWith(t, p.app, "milena_interrupted_total", `error_class="proxy"`); n == 0 {
		t.Error("no interruption is of class proxy")
	}
	h.nothingWasCounted(p)
}

// Our network is gone: every endpoint fails to connect at once.
func TestANetworkThatIsGoneCostsNoAttempt(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	var ids []string
	var eps []*schemas.Endpoint
	for i := range 12 { // each on a host of its own
		id := "ep" + strconv.Itoa(i)
		host := id + ".example"
		h.resolve(host, resolvesTo("127.0.0.1"))
		h.cfg.Egress.AllowHosts = append(h.cfg.Egress.AllowHosts, host)
		eps = append(eps, &schemas.Endpoint{ID: id, URL: strings.Replace(h.receiver.URL("/"+id), "127.0.0.1", host, 1)})
		ids = append(ids, id)
	}
	for id, secret := range h.enrol(eps...) {
		h.receiver.Secrets(t, "/"+id, secret)
	}
	p := h.start()
	h.ready(p)
	h.send(3, 200, ids...)
	h.delivered(30 * time.Second) // all are known to be well
	for i, gone := range []error{syscall.ENETUNREACH, syscall.EADDRNOTAVAIL} {
		h.settled(20 * time.Second)
		before := metric(t, p.app, "milena_interrupted_total")
		h.unplug(gone)
		h.send(3, 200, ids...)
		testkit.Eventually(t, 30*time.Second, func() string {
			if n := metric(t, p.app, "milena_interrupted_total") - before; n < 3 {
				return fmt.Sprintf("%v attempts were interrupted by %v", n, gone)
			}
			return ""
		})
		h.refuse("*", nil)
		back := time.Now()
		h.delivered(30 * time.Second)
		t.Logf("%d: %v; all was delivered %s after it was back", i, gone, time.Since(back).Round(time.Millisecond))
	}
	h.settled(20 * time.Second)
	h.nothingWasCounted(p)
}

// A name that led to a public address when it was registered leads to this machine
// when it is sent to.
func TestANameThatIsBoundAgainReachesNothing(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	url, log := h.listen(nil, says(ok200))
	url = strings.Replace(url, receiverHost, "rebound.example", 1)
	h.resolve("rebound.example", resolvesTo("8.8.4.4"))
	h.refuse(strings.TrimSuffix(unroutable, ":")+url[strings.LastIndexByte(url, ':'):strings.LastIndexByte(url, '/')], syscall.ECONNREFUSED)
	h.enrol(&schemas.Endpoint{ID: "rebound", URL: url, Retry: schemas.Retry{Schedule: []schemas.Duration{schemas.Duration(time.Second)}}})
	h.ready(h.start())
	testkit.Produce(t, h.client, h.record("rebound", "one", []byte("{}")))
	testkit.Eventually(t, 30*time.Second, func() string {
		for _, history := range h.attempts() {
			if history[0].ErrorClass == schemas.ClassConnect {
				return ""
			}
		}
		return "no attempt at the public address"
	})
	h.resolve("rebound.example", resolvesTo("127.0.0.1"))
	for _, l := range h.awaitLetters(1) {
		if l.Reason != schemas.ReasonBlockedAddress {
			t.Errorf("dead of %s", l.Reason)
		}
	}
	if n := len(log.list()); n != 0 {
		t.Errorf("%d requests reached this machine", n)
	}
}

// A receiver that ends its connections while they are idle costs no attempt; one that
// ends them under a request costs that attempt, and exactly one POST left for it.
func TestKeptConnectionsThatEndCostWhatTheyMust(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	const n = 16                                     // fewer than a breaker wants for "half of them failed"
	idle, idleLog := h.listen(nil, func(c *caller) { // keep-alive is promised, and then it closes
		if c.request() && c.Say(ok200) == nil {
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			c.AwaitClose() // the client has noticed: else its next request may meet the close
		}
	})
	rude, rudeLog := h.listen(nil, func(c *caller) {
		if c.request() && c.Say(ok200) == nil && c.request() {
			c.Reset()
		}
	})
	one := schemas.Retry{Schedule: []schemas.Duration{schemas.Duration(time.Hour)}}
	h.enrol(&schemas.Endpoint{ID: "idle", URL: idle, MaxInFlight: 1, Retry: one},
		&schemas.Endpoint{ID: "rude", URL: rude, MaxInFlight: 1, Retry: one})
	p := h.start()
	h.ready(p)
	testkit.Produce(t, h.client, h.numbered("rude", n)...)
	for i, rec := range h.numbered("idle", n) {
		testkit.Produce(t, h.client, rec)
		testkit.Eventually(t, 30*time.Second, func() string { // it is closed before the next one is there
			if idleLog.scriptsEnded() <= i {
				return fmt.Sprintf("number %d was not answered", i)
			}
			return ""
		})
	}
	testkit.Eventually(t, time.Minute, func() string {
		if got := len(h.attempts()); got < 2*n {
			return fmt.Sprintf("%d of %d have an attempt record", got, 2*n)
		}
		return ""
	})
	h.settled(20 * time.Second)
	interrupted := interruptions(t, p.app)
	failed := 0
	for id, history := range h.attempts() {
		a := history[0]
		switch {
		case len(history) != 1 || a.Number != 1:
			t.Errorf("%s has %d attempt records", id, len(history))
		case a.EndpointID == "idle" && a.Outcome != schemas.OutcomeDelivered:
			t.Errorf("%s came to %s (%s): %s", id, a.Outcome, a.ErrorClass, a.Error)
		case a.EndpointID == "rude" && a.Outcome == schemas.OutcomeRetry && a.ErrorClass == schemas.ClassReset:
			failed++
		case a.Outcome != schemas.OutcomeDelivered:
			t.Errorf("%s came to %s (%s): %s", id, a.Outcome, a.ErrorClass, a.Error)
		}
	}
	if failed < n/3 {
		t.Errorf("%d attempts were reset: the receiver does not do what the test means", failed)
	}
	for name, log := range map[string]*posts{"idle": idleLog, "rude": rudeLog} {
		if got := len(log.list()); got < n || got > n+interrupted {
			t.Errorf("%s saw %d POSTs for %d attempts", name, got, n)
		}
	}
}
