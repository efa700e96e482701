package flowtest

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// receiverCase is one receiver that misbehaves, and what one delivery to it must
// come to: in the receiver's own log, in the delivery log, and in where the delivery
// is afterwards.
type receiverCase struct {
	name   string
	speaks *tls.Config // nil: plain TCP
	script func(*caller)
	url    string // in place of a receiver of its own
	retry  schemas.Retry
	limit  time.Duration // of the attempt; default the longest
	body   []byte

	outcome schemas.Outcome // default retry
	reason  schemas.Reason
	class   schemas.ErrorClass
	status  int
	says    string           // in the attempt record: its error, a header or the body
	posts   int              // requests that the receiver saw whole; default 1, -1: any number
	next    [2]time.Duration // of the next try, from the end of the attempt; default the standard preset's
	drops   bool             // the connection must be dropped while the receiver still speaks
}

// TestEveryReceiverComesToItsOutcome sends one delivery to each of the receivers, all
// at the same time, through one installation. Each endpoint has credentials and each
// URL a key, some receivers say back what they were sent, and everything is logged:
// nothing of it may stand in what the process has written.
func TestEveryReceiverComesToItsOutcome(t *testing.T) {
	h := newHostile(t)
	h.cfg.Roles = []string{app.RoleDispatcher} // what waits goes on waiting: no machine is too slow to look at the first try
	trap, trapped := h.listen(nil, func(c *caller) { c.request() })
	cases := slices.Concat(h.answers(trap), h.retryAfters(), h.protocols(), h.connections(), h.handshakes(), h.streams(), h.addresses(trap), h.echoes())
	receivers := make(map[string]*posts)
	var eps []*schemas.Endpoint
	var plain []schemas.Auth
	for i := range cases {
		c := &cases[i]
		c.setDefaults()
		ep := &schemas.Endpoint{ID: c.name, URL: c.url, Retry: c.retry, Timeout: schemas.Duration(c.limit)}
		if c.script != nil {
			ep.URL, receivers[c.name] = h.listen(c.speaks, c.script)
		}
		plain = append(plain, credentials(ep, i))
		eps = append(eps, ep)
	}
	secrets := h.enrol(eps...)
	logs := h.logEverything()
	got := h.attemptsOf()
	p := h.start()
	h.ready(p)
	var recs []*kgo.Record
	for i := range cases {
		recs = append(recs, h.record(cases[i].name, "one", cases[i].body))
	}
	testkit.Produce(t, h.client, recs...)
	testkit.Eventually(t, time.Minute, func() string { return got.missing(eps) })
	h.settled(30 * time.Second)

	after, interrupted := h.aftermath(), interruptions(t, p.app)
	for i := range cases {
		c := &cases[i]
		t.Run(c.name, func(t *testing.T) {
			c.checkAttempt(t, after.attempts[c.name])
			c.checkPlace(t, after)
			if log := receivers[c.name]; log != nil {
				c.checkReceiver(t, log, secrets[c.name], interrupted)
			}
		})
	}
	if n := len(trapped.list()); n > 0 {
		t.Errorf("%d requests reached a place that a redirect or a name led to", n)
	}
	h.checkDials()
	var all []secret
	for i, ep := range eps {
		all = append(all, secretsOf(ep, plain[i], secrets[ep.ID])...)
	}
	h.searchSecrets(logs, p.app, all)
}

func (c *receiverCase) setDefaults() {
	if c.outcome == "" {
		c.outcome = schemas.OutcomeRetry
	}
	if c.limit == 0 {
		c.limit = longest
	}
	if c.posts == 0 {
		c.posts = 1
	}
	if c.body == nil {
		c.body = []byte(`{"of":"` + c.name + `"}`)
	}
	if c.next == [2]time.Duration{} {
		c.next = [2]time.Duration{time.Minute, 66 * time.Second}
	}
	if len(c.retry.Schedule) > 0 {
		first := time.Duration(c.retry.Schedule[0])
		c.next = [2]time.Duration{first, first + first/10}
	}
}

// seenAttempts are the endpoints of which a process has told an attempt.
type seenAttempts struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (f *flow) attemptsOf() *seenAttempts {
	s := &seenAttempts{ids: make(map[string]bool)}
	f.opts.OnAttempt = func(a *schemas.Attempt) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ids[a.EndpointID] = true
	}
	return s
}

func (s *seenAttempts) missing(eps []*schemas.Endpoint) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []string
	for _, ep := range eps {
		if !s.ids[ep.ID] {
			left = append(left, ep.ID)
		}
	}
	if len(left) == 0 {
		return ""
	}
	return fmt.Sprintf("no attempt of %d endpoints is told: %s", len(left), strings.Join(left[:min(8, len(left))], " "))
}

// aftermath is where everything is when all is settled.
type aftermath struct {
	attempts map[string][]schemas.Attempt // by endpoint
	letters  map[string][]schemas.Letter
	waiting  map[string][]schemas.Delivery // in a tier
}

func (f *flow) aftermath() aftermath {
	f.t.Helper()
	a := aftermath{map[string][]schemas.Attempt{}, map[string][]schemas.Letter{}, map[string][]schemas.Delivery{}}
	for _, history := range f.attempts() {
		id := history[0].EndpointID
		a.attempts[id] = append(a.attempts[id], history...)
	}
	for _, rec := range f.read(f.names().DLQ()) {
		l, err := schemas.ParseLetter(rec)
		must(f.t, err)
		a.letters[l.EndpointID] = append(a.letters[l.EndpointID], l)
	}
	for _, tier := range f.cfg.Retry.Tiers {
		for _, rec := range f.read(f.names().Retry(tier)) {
			d, err := schemas.ParseDelivery(rec)
			must(f.t, err)
			// One that has gone on to another tier waits once.
			a.waiting[d.EndpointID] = append(slices.DeleteFunc(a.waiting[d.EndpointID], func(o schemas.Delivery) bool {
				return o.ID() == d.ID() && o.Attempt == d.Attempt
			}), d)
		}
	}
	return a
}

func (c *receiverCase) checkAttempt(t *testing.T, history []schemas.Attempt) {
	t.Helper()
	if len(history) != 1 {
		t.Fatalf("%d attempt records, not one: %+v", len(history), history)
	}
	a := history[0]
	if a.Outcome != c.outcome || a.Reason != c.reason || a.ErrorClass != c.class || a.Status != c.status || a.Number != 1 {
		t.Errorf("came to %s %q, class %q, status %d (%s) at attempt %d; must come to %s %q, class %q, status %d",
			a.Outcome, a.Reason, a.ErrorClass, a.Status, a.Error, a.Number, c.outcome, c.reason, c.class, c.status)
	}
	told := a.Error + "\n" + a.ResponseBody
	for _, p := range a.ResponseHeaders {
		told += "\n" + p.Name + ": " + p.Value
	}
	if !strings.Contains(told, c.says) {
		t.Errorf("the attempt record does not tell %q but %q", c.says, told)
	}
	if c.class != "" && a.Error == "" {
		t.Error("the attempt record does not tell why")
	}
	if c.outcome != schemas.OutcomeRetry {
		return
	}
	ended := a.Started.Add(time.Duration(a.Duration * float64(time.Millisecond)))
	if wait := a.NextTry.Sub(ended); wait < c.next[0]-time.Second || wait > c.next[1]+10*time.Second {
		t.Errorf("the next try is %s after the attempt, not %s to %s", wait, c.next[0], c.next[1])
	}
}

// checkPlace demands that the delivery is in exactly one place.
func (c *receiverCase) checkPlace(t *testing.T, after aftermath) {
	t.Helper()
	letters, waiting := after.letters[c.name], after.waiting[c.name]
	wantLetters, wantWaiting := 0, 0
	switch c.outcome {
	case schemas.OutcomeDead:
		wantLetters = 1
	case schemas.OutcomeRetry:
		wantWaiting = 1
	}
	if len(letters) != wantLetters || len(waiting) != wantWaiting {
		t.Fatalf("%d dead letters and %d waiting, not %d and %d", len(letters), len(waiting), wantLetters, wantWaiting)
	}
	if wantLetters == 1 && (letters[0].Reason != c.reason || string(letters[0].Payload) != string(c.body)) {
		t.Errorf("the dead letter is of %s with %d bytes", letters[0].Reason, len(letters[0].Payload))
	}
	if wantWaiting == 1 && (waiting[0].Attempt != 1 || waiting[0].ErrorClass != c.class || string(waiting[0].Payload) != string(c.body)) {
		t.Errorf("what waits has %d attempts, class %q and %d bytes", waiting[0].Attempt, waiting[0].ErrorClass, len(waiting[0].Payload))
	}
}

func (c *receiverCase) checkReceiver(t *testing.T, log *posts, secret string, interrupted int) {
	t.Helper()
	all := log.list()
	least := c.posts
	if c.class == schemas.ClassTimeout {
		least = 0 // a machine that is slow enough runs into the deadline before
	}
	if c.posts >= 0 && (len(all) < least || len(all) > c.posts+interrupted) {
		t.Errorf("the receiver saw %d requests for one attempt, not %d", len(all), c.posts)
	}
	for _, p := range all {
		checkPost(t, p, secret, c.body)
	}
	if c.drops {
		testkit.Eventually(t, 20*time.Second, func() string {
			if log.scriptsEnded() == 0 {
				return "the connection is still open"
			}
			return ""
		})
	}
}

// checkDials demands that nothing went to an address that is not a receiver's.
func (h *hostile) checkDials() {
	h.t.Helper()
	for _, addr := range h.dials() {
		if !strings.HasPrefix(addr, "127.0.0.1:") && !strings.HasPrefix(addr, unroutable) {
			h.t.Errorf("a connection to %s was begun", addr)
		}
	}
}
