package testkit

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
)

// Produced is what a test wrote into Kafka, as the set that the receivers'
// logs must equal. Safe for concurrent use.
type Produced struct {
	mu    sync.Mutex
	n     int
	facts map[fact]*wanted
}

// wanted is kept once per distinct fact; the strings are the caller's.
type wanted struct {
	path, id  string
	want, got int
}

// NewProduced makes an empty set; size is a hint.
func NewProduced(size int) *Produced {
	return &Produced{facts: make(map[fact]*wanted, size)}
}

// Add says that the endpoint with that URL path must receive the message with
// that webhook-id and body. Adding the same again means that one more is
// wanted: two records of a producer are two deliveries, also with one id.
func (p *Produced) Add(path, messageID string, body []byte) {
	sum := sha256.Sum256(body)
	f := factOf(path, messageID, &sum)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	if w := p.facts[f]; w != nil {
		w.want++
		return
	}
	p.facts[f] = &wanted{path: path, id: messageID, want: 1}
}

// Len is the number of deliveries wanted.
func (p *Produced) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// Comparison is what a log holds against what was produced.
type Comparison struct {
	Produced   int
	Received   int
	Missing    int // wanted and not received
	Repeats    int // received more often than wanted
	Corrupted  int // a message that was wanted there, with another body
	Unexpected int // a message that was never wanted there
	// Samples name up to 20 of the missing ones as path and webhook-id.
	Samples []string
}

const maxSamples = 20

// Complete reports whether nothing is missing and nothing wrong arrived.
// Repeats are allowed: delivery is at least once.
func (c Comparison) Complete() bool { return c.Missing == 0 && c.Corrupted == 0 && c.Unexpected == 0 }

// String is one line for a test's log.
func (c Comparison) String() string {
	s := fmt.Sprintf("produced %d, received %d, missing %d, repeats %d, corrupted %d, unexpected %d",
		c.Produced, c.Received, c.Missing, c.Repeats, c.Corrupted, c.Unexpected)
	if len(c.Samples) > 0 {
		s += "; missing: " + strings.Join(c.Samples, ", ")
	}
	return s
}

// Compare holds receivers' logs, together, against what was produced.
func Compare(p *Produced, logs ...*ReceiverLog) Comparison {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := Comparison{Produced: p.n}
	known := make(map[[16]byte]struct{}, len(p.facts))
	for f, w := range p.facts {
		known[f.who] = struct{}{}
		w.got = 0
	}
	for _, l := range logs {
		l.each(func(r *line) {
			c.Received++
			if w := p.facts[r.fact]; w != nil {
				w.got++
			} else if _, ok := known[r.who]; ok {
				c.Corrupted++
			} else {
				c.Unexpected++
			}
		})
	}
	for _, w := range p.facts {
		c.Repeats += max(0, w.got-w.want)
		if w.got < w.want {
			c.Missing += w.want - w.got
			if len(c.Samples) < maxSamples {
				c.Samples = append(c.Samples, w.path+" "+w.id)
			}
		}
	}
	return c
}
