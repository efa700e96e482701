package testkit

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"
)

// Received is one request as the receiver saw it.
type Received struct {
	At         time.Time // when its headers had arrived
	Path       string
	N          int // the how many-th of its path, from 1
	MessageID  string
	DeliveryID string
	Attempt    string // the milena-attempt header as it was sent
	Timestamp  string // webhook-timestamp
	Signature  string // webhook-signature
	Sum        [sha256.Size]byte
	Size       int         // bytes of body
	Header     http.Header // nil in a compact log
	Body       []byte      // only with KeepBodies
	Proto      string
	// Invalid says why the signature did not verify; nil when it did, or when
	// no secret was set for the path.
	Invalid error
}

// fact identifies what was delivered where: half of SHA-256 of path, NUL and
// webhook-id, and half of SHA-256 of the body. 128 bits of each are enough to
// tell millions apart and keep the log of a million requests in 50 MB.
type fact struct{ who, body [16]byte }

func factOf(path, messageID string, bodySum *[sha256.Size]byte) fact {
	b := make([]byte, 0, 256)
	b = append(b, path...)
	b = append(b, 0)
	b = append(b, messageID...)
	who := sha256.Sum256(b)
	return fact{[16]byte(who[:16]), [16]byte(bodySum[:16])}
}

// line is the compact form of a request, kept for every one.
type line struct {
	fact
	at int64 // unix ns
}

// linesPerChunk keeps growth cheap: a chunk is never copied.
const linesPerChunk = 8192

// ReceiverLog is a receiver's own record of what arrived, in order of arrival.
// Safe for concurrent use.
type ReceiverLog struct {
	mu      sync.Mutex
	n       int
	invalid int
	chunks  [][]line
	full    []Received // unless compact
	compact bool
	waiters []countWaiter
}

type countWaiter struct {
	n  int
	ch chan struct{}
}

func (l *ReceiverLog) add(r *Received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n%linesPerChunk == 0 {
		l.chunks = append(l.chunks, make([]line, 0, linesPerChunk))
	}
	last := &l.chunks[len(l.chunks)-1]
	*last = append(*last, line{factOf(r.Path, r.MessageID, &r.Sum), r.At.UnixNano()})
	l.n++
	if r.Invalid != nil {
		l.invalid++
	}
	if !l.compact {
		l.full = append(l.full, *r)
	}
	kept := l.waiters[:0]
	for _, w := range l.waiters {
		if l.n >= w.n {
			close(w.ch)
		} else {
			kept = append(kept, w)
		}
	}
	l.waiters = kept
}

// Len is the number of requests so far.
func (l *ReceiverLog) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// Invalid is the number of requests whose signature did not verify.
func (l *ReceiverLog) Invalid() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.invalid
}

// All copies the requests so far, optionally those of some paths only. A
// compact log has none to give.
func (l *ReceiverLog) All(paths ...string) []Received {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(paths) == 0 {
		return append([]Received(nil), l.full...)
	}
	var out []Received
	for i := range l.full {
		for _, p := range paths {
			if l.full[i].Path == p {
				out = append(out, l.full[i])
				break
			}
		}
	}
	return out
}

// each calls fn for every request in order of arrival, on the log's lock.
func (l *ReceiverLog) each(fn func(*line)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.chunks {
		for i := range c {
			fn(&c[i])
		}
	}
}

// reached returns a channel that is closed once n requests are in the log.
func (l *ReceiverLog) reached(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := make(chan struct{})
	if l.n >= n {
		close(ch)
	} else {
		l.waiters = append(l.waiters, countWaiter{n, ch})
	}
	return ch
}
