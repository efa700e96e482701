package devmode

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The behaviours of the sample endpoints; they are their ids too.
const (
	Good  = "good"  // answers 204
	Flaky = "flaky" // 30 % of the answers are 500
	Dead  = "dead"  // answers 503 for its first minute
)

const (
	flakyShare = 0.30
	deadFor    = time.Minute
	// maxBody is more than any topic of Milena takes.
	maxBody = 4 << 20
)

// Received is what the receiver has seen of one endpoint.
type Received struct {
	Requests int
	Verified int // requests whose signature was right
	Bad      int // requests whose signature was not
	Accepted int // different messages that were answered with 2xx
}

// Receiver is an HTTP server that answers as the sample endpoints do. It verifies
// every request with the public Standard Webhooks library before it looks at
// anything else, and answers 401 where the signature is wrong.
type Receiver struct {
	// Addr is where it listens: the URL of an endpoint is http://Addr/<id>.
	Addr string
	// Accepted, if not nil, hears of each message that was verified and taken for
	// the first time by an endpoint. It must be quick.
	Accepted func(endpoint, messageID string)

	server  *http.Server
	started time.Time

	mu    sync.Mutex // guards what follows
	hooks map[string]*standardwebhooks.Webhook
	seen  map[string]map[string]struct{} // endpoint, message ids that were answered with 2xx
	count map[string]*Received
}

// StartReceiver listens on addr, a loopback address; port 0 picks one.
func StartReceiver(addr string) (*Receiver, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("the echo receiver cannot listen on %s: %w", addr, err)
	}
	r := &Receiver{Addr: ln.Addr().String(), started: time.Now(), hooks: map[string]*standardwebhooks.Webhook{},
		seen: map[string]map[string]struct{}{}, count: map[string]*Received{}}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(ln) }() // ends with Close; whatever else ends it shows as failed attempts
	return r, nil
}

// Expect tells the receiver the secret of an endpoint, whsec_….
func (r *Receiver) Expect(endpoint, secret string) error {
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return fmt.Errorf("secret of endpoint %s: %w", endpoint, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks[endpoint] = hook
	if r.count[endpoint] == nil {
		r.count[endpoint], r.seen[endpoint] = &Received{}, map[string]struct{}{}
	}
	return nil
}

// Count is what was received for an endpoint so far.
func (r *Receiver) Count(endpoint string) Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.count[endpoint]; c != nil {
		return *c
	}
	return Received{}
}

// Close stops the server and gives its requests a moment to end. Not longer:
// Shutdown waits five seconds for connections that were opened and never used.
func (r *Receiver) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if r.server.Shutdown(ctx) != nil {
		_ = r.server.Close()
	}
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	id := req.URL.Path[min(1, len(req.URL.Path)):]
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	hook, count := r.hooks[id], r.count[id]
	r.mu.Unlock()
	if hook == nil {
		http.Error(w, "no such endpoint here", http.StatusNotFound)
		return
	}
	err = hook.Verify(body, req.Header)
	r.mu.Lock()
	count.Requests++
	if err != nil {
		count.Bad++
	} else {
		count.Verified++
	}
	r.mu.Unlock()
	if err != nil {
		http.Error(w, "the signature is wrong: "+err.Error(), http.StatusUnauthorized)
		return
	}
	if status := r.behave(id); status != http.StatusNoContent {
		http.Error(w, http.StatusText(status)+", as this sample endpoint does", status)
		return
	}
	r.take(id, req.Header.Get(standardwebhooks.HeaderWebhookID))
	w.WriteHeader(http.StatusNoContent)
}

// behave is the answer of an endpoint to a request that was verified.
func (r *Receiver) behave(id string) int {
	switch {
	case id == Flaky && rand.Float64() < flakyShare:
		return http.StatusInternalServerError
	case id == Dead && time.Since(r.started) < deadFor:
		return http.StatusServiceUnavailable
	}
	return http.StatusNoContent
}

func (r *Receiver) take(id, messageID string) {
	r.mu.Lock()
	_, again := r.seen[id][messageID]
	if !again {
		r.seen[id][messageID] = struct{}{}
		r.count[id].Accepted++
	}
	r.mu.Unlock()
	if !again && r.Accepted != nil {
		r.Accepted(id, messageID)
	}
}
