package egress

import (
	"sync"
	"time"
)

const (
	proxyFaults = 5               // in a row open the proxy's breaker
	proxyRest   = 2 * time.Second // for that long; then one connection probes
)

// proxyBreaker leaves a proxy alone that fails: without it every attempt of every
// endpoint would wait for the same fault.
type proxyBreaker struct {
	mu      sync.Mutex
	faults  int
	until   time.Time // open until then
	probing bool
	last    error
}

func (b *proxyBreaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.faults < proxyFaults {
		return true
	}
	if now.Before(b.until) || b.probing {
		return false
	}
	b.probing = true
	return true
}

func (b *proxyBreaker) failed(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults, b.probing, b.last = b.faults+1, false, err
	b.until = now.Add(proxyRest)
}

func (b *proxyBreaker) worked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults, b.probing, b.last = 0, false, nil
}

// unknown: the attempt ended before the proxy said anything.
func (b *proxyBreaker) unknown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

func (b *proxyBreaker) cause() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}
