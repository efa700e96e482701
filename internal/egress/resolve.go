package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Bounds of the cache and of what a hostile name server may make us do.
const (
	maxCachedNames = 16384
	maxAnswer      = 64 // addresses of one name; more are a fault of the name
)

// cache keeps answers of the resolver for a fixed time. What it returns has not
// been checked: the guard looks at every address at every dial.
type cache struct {
	next Resolver
	ttl  time.Duration // ≤ 0: nothing is kept

	mu   sync.Mutex
	seen map[string]answer
}

type answer struct {
	addrs   []netip.Addr
	missing *net.DNSError // the name does not exist
	until   time.Time
}

func newCache(c Config) *cache {
	return &cache{next: c.Resolver, ttl: c.DNSTTL, seen: map[string]answer{}}
}

// lookup returns the addresses of a name, at least one; errors are *net.DNSError
// or the context's.
func (c *cache) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	c.mu.Lock()
	a, ok := c.seen[host]
	c.mu.Unlock()
	if ok && time.Now().Before(a.until) {
		if a.missing != nil {
			return nil, a.missing
		}
		return a.addrs, nil
	}
	addrs, err := c.next.LookupNetIP(ctx, "ip", host)
	for i, a := range addrs {
		// net.Resolver writes IPv4 answers as ::ffff:a.b.c.d, which the guard refuses
		// as a spelling. What they map to is what is judged and dialled.
		addrs[i] = a.Unmap()
	}
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if err == nil && len(addrs) > maxAnswer {
		err = &net.DNSError{Err: "the name has too many addresses", Name: host}
	}
	if err != nil {
		// That a name is missing is remembered for the floor: a receiver that was
		// deleted must not cost a lookup an attempt.
		if d, ok := errors.AsType[*net.DNSError](err); ok && d.IsNotFound {
			c.keep(host, answer{missing: d}, min(c.ttl, MinDNSTTL))
		}
		return nil, err
	}
	c.keep(host, answer{addrs: addrs}, c.ttl)
	return addrs, nil
}

// forget drops the answer for a name whose addresses do not answer: it may have moved.
func (c *cache) forget(host string) {
	c.mu.Lock()
	delete(c.seen, host)
	c.mu.Unlock()
}

func (c *cache) keep(host string, a answer, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	now := time.Now()
	a.until = now.Add(ttl)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) >= maxCachedNames {
		c.shrink(now)
	}
	c.seen[host] = a
}

// shrink makes room: what has expired goes, and if that is little, any eighth.
func (c *cache) shrink(now time.Time) {
	for h, a := range c.seen {
		if !now.Before(a.until) {
			delete(c.seen, h)
		}
	}
	for h := range c.seen {
		if len(c.seen) <= maxCachedNames*7/8 {
			return
		}
		delete(c.seen, h)
	}
}
