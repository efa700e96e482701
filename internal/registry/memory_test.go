package registry

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// sampleRecord is an endpoint as people register them: two secrets, three types, two
// headers, 200 bytes of description.
func sampleRecord(i int, sealed [2]schemas.Secret) []byte {
	ep := schemas.Endpoint{
		ID: fmt.Sprintf("ep_%022d", i), Tenant: fmt.Sprintf("tenant-%d", i/2), State: schemas.StateEnabled,
		URL:         fmt.Sprintf("https://hooks.customer-%d.example.com/webhooks/incoming/%d", i, i),
		Description: strings.Repeat(fmt.Sprintf("%010d", i), 20),
		EventTypes:  []string{"payment.captured", "shipment.*", "order.item.added"},
		Secrets:     sealed[:],
		Headers:     []schemas.Pair{{Name: "x-customer", Value: fmt.Sprint("c", i)}, {Name: "x-environment", Value: "production"}},
		MaxInFlight: 20, RateLimit: &schemas.RateLimit{Rate: 50, Burst: 100}, Timeout: schemas.Duration(10 * time.Second),
		Version: 3, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(),
	}
	b, err := json.Marshal(&ep)
	if err != nil {
		panic(err)
	}
	return b
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func loadedFollower(tb testing.TB, n int) *Follower {
	ring := ringOf(tb, "k1")
	text := "whsec_" + strings.Repeat("x", 44)
	sealed := [2]schemas.Secret{sealedSecret(tb, ring, "e", text), sealedSecret(tb, ring, "e", text)}
	sealed[1].ExpiresAt = time.Now().Add(time.Hour).UTC()
	cfg := kafka.Config{Names: schemas.Names{Prefix: schemas.DefaultPrefix}}
	f := NewFollower(cfg, ring, FollowerOptions{})
	f.restart()
	for i := range n {
		value := sampleRecord(i, sealed)
		id := fmt.Sprintf("ep_%022d", i)
		f.apply([]*kgo.Record{{Key: []byte(id), Value: value, Timestamp: time.Now()}})
	}
	f.loading.buildIndex()
	f.shown.Store(f.loading)
	return f
}

func TestRegisteredEndpointCostsAtMost2KB(t *testing.T) {
	n := 100_000
	if testing.Short() || testkit.Race {
		n = 3_000
	}
	before := heap()
	f := loadedFollower(t, n)
	each := (heap() - before) / uint64(n)
	t.Logf("%d endpoints: %d bytes each", n, each)
	if f.Len() != n {
		t.Fatalf("Len is %d", f.Len())
	}
	if each > 2048 {
		t.Fatalf("an endpoint costs %d bytes, more than 2,048", each)
	}
}

func BenchmarkEndpoint(b *testing.B) {
	f := loadedFollower(b, 20_000)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, ok := f.Endpoint(fmt.Sprintf("ep_%022d", rand.IntN(20_000))); !ok {
				b.Fail()
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	f := loadedFollower(b, 20_000)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if len(f.Match("tenant-77", "order.item.added")) != 2 {
				b.Fail()
			}
		}
	})
}

// BenchmarkChangeInALargeList is a change of one of many endpoints that share a subscription.
func BenchmarkChangeInALargeList(b *testing.B) {
	v := newView()
	const n = 1_000_000
	for i := range n {
		v.put(&Endpoint{ID: fmt.Sprintf("e%07d", i), EventTypes: []string{"*"}, State: schemas.StateEnabled}, time.Hour)
	}
	v.buildIndex()
	for b.Loop() {
		v.put(&Endpoint{ID: fmt.Sprintf("e%07d", rand.IntN(n)), EventTypes: []string{"*"}, State: schemas.StateEnabled}, time.Hour)
	}
}
