package registry

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Endpoint is one registered endpoint. Those that this package hands out are
// shared by all readers and are never to be changed.
type Endpoint = schemas.Endpoint

// subscription is a key of the index: one pattern of event types of one tenant.
type subscription struct{ tenant, pattern string }

// view is what the topic says up to some offset. One goroutine writes; any number read.
//
// The index holds, for each subscription, the live endpoints that have it in the
// order of their ids. While the topic is read for the first time there is no index:
// sorting each list once at the end is what makes a million endpoints in one list
// possible (an insertion moves the whole tail).
type view struct {
	mu        sync.RWMutex
	endpoints map[string]*Endpoint // deleted ones too
	deleted   map[string]time.Time // when they are to be forgotten
	index     map[subscription][]*Endpoint
	indexed   bool
	keys      keyUse

	texts interner // writer only
}

func newView() *view {
	return &view{
		endpoints: make(map[string]*Endpoint),
		deleted:   make(map[string]time.Time),
		index:     make(map[subscription][]*Endpoint),
		keys:      make(keyUse),
		texts:     make(interner),
	}
}

func (v *view) get(id string) (*Endpoint, bool) {
	v.mu.RLock()
	ep, ok := v.endpoints[id]
	v.mu.RUnlock()
	return ep, ok
}

// put takes in an endpoint.
func (v *view) put(ep *Endpoint, keepDeleted time.Duration) {
	v.texts.compact(ep)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(ep.ID)
	v.endpoints[ep.ID] = ep
	if ep.State == schemas.StateDeleted {
		v.deleted[ep.ID] = ep.UpdatedAt.Add(keepDeleted)
		return
	}
	v.keys.add(ep, 1)
	if !v.indexed {
		return
	}
	for _, pattern := range ep.EventTypes {
		k := subscription{ep.Tenant, pattern}
		list := v.index[k]
		at, found := slices.BinarySearchFunc(list, ep.ID, byID)
		if !found { // found: the same pattern twice in one endpoint
			v.index[k] = slices.Insert(list, at, ep)
		}
	}
}

// remove forgets an endpoint.
func (v *view) remove(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(id)
}

// forgetDeleted drops the deleted endpoints whose time is over.
func (v *view) forgetDeleted(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, until := range v.deleted {
		if now.After(until) {
			v.drop(id)
		}
	}
}

// drop needs the lock.
func (v *view) drop(id string) {
	old, ok := v.endpoints[id]
	if !ok {
		return
	}
	delete(v.endpoints, id)
	if old.State == schemas.StateDeleted {
		delete(v.deleted, id)
		return
	}
	v.keys.add(old, -1)
	if !v.indexed {
		return
	}
	for _, pattern := range old.EventTypes {
		k := subscription{old.Tenant, pattern}
		list := v.index[k]
		at, found := slices.BinarySearchFunc(list, id, byID)
		switch {
		case !found:
		case len(list) == 1:
			delete(v.index, k)
		default:
			v.index[k] = slices.Delete(list, at, at+1)
		}
	}
}

// buildIndex is called once, when the topic has been read to its end.
func (v *view) buildIndex() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, ep := range v.endpoints {
		if ep.State == schemas.StateDeleted {
			continue
		}
		for _, pattern := range ep.EventTypes {
			k := subscription{ep.Tenant, pattern}
			v.index[k] = append(v.index[k], ep)
		}
	}
	for k, list := range v.index {
		slices.SortFunc(list, func(a, b *Endpoint) int { return strings.Compare(a.ID, b.ID) })
		list = slices.Compact(list)
		v.index[k] = append(make([]*Endpoint, 0, len(list)), list...)
	}
	v.indexed = true
}

func byID(ep *Endpoint, id string) int { return strings.Compare(ep.ID, id) }

// match returns the live endpoints that subscribe to an event type, in the order of
// their ids, each once.
func (v *view) match(tenant, eventType string) []*Endpoint {
	if eventType == "" {
		return nil
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	found := slices.Clone(v.index[subscription{tenant, eventType}])
	if strings.HasSuffix(eventType, "*") {
		found = nil // the name of a pattern is not an event type that it matches by being equal
	}
	lists := min(len(found), 1)
	take := func(pattern string) {
		if list := v.index[subscription{tenant, pattern}]; len(list) > 0 {
			found = append(found, list...)
			lists++
		}
	}
	var scratch [128]byte
	for i := 0; i < len(eventType)-1; i++ {
		if eventType[i] == '.' {
			take(string(append(append(scratch[:0], eventType[:i+1]...), '*')))
		}
	}
	take("*")
	if lists > 1 {
		slices.SortFunc(found, func(a, b *Endpoint) int { return strings.Compare(a.ID, b.ID) })
		found = slices.Compact(found)
	}
	return found
}

func (v *view) len() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.endpoints) - len(v.deleted)
}

func (v *view) longestTimeout(byDefault time.Duration) time.Duration {
	v.mu.RLock()
	defer v.mu.RUnlock()
	longest, unsaid := time.Duration(0), len(v.endpoints) == len(v.deleted)
	for _, ep := range v.endpoints {
		if ep.State != schemas.StateDeleted {
			longest, unsaid = max(longest, time.Duration(ep.Timeout)), unsaid || ep.Timeout == 0
		}
	}
	if unsaid {
		longest = max(longest, byDefault)
	}
	return longest
}

// missingKey returns an error that names a key which a live secret needs and the
// ring lacks, or nil.
func (v *view) missingKey(ring *KeyRing) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.keys.missing(ring)
}

// wrongKey finds keys that have the right id and open nothing that bears it: they
// would be noticed only at the first delivery otherwise. A single damaged text does
// not count against a key that opens another.
func (v *view) wrongKey(ring *KeyRing) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	proven := make(map[string]bool, len(v.keys))
	doubted := make(map[string]string)
	for _, ep := range v.endpoints {
		if len(proven) == len(v.keys) {
			break
		}
		for sealed := range sealedTexts(ep) {
			id, _, err := splitSealed(sealed)
			if err != nil || proven[id] {
				continue
			}
			if _, err := ring.Open(ep.ID, sealed); err != nil {
				doubted[id] = ep.ID
				continue
			}
			proven[id] = true
		}
	}
	for id, endpointID := range doubted {
		if !proven[id] {
			return &MissingKeyError{KeyID: id, EndpointID: endpointID, Wrong: true}
		}
	}
	return nil
}
