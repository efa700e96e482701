package flowtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/registry"
)

// endpoints registers n endpoints and returns their ids.
func (f *flow) endpoints(n int, edit ...func(*registry.Endpoint)) (ids []string) {
	f.t.Helper()
	for i := range n {
		id := fmt.Sprintf("ep%d", i)
		f.endpoint(id, edit...)
		ids = append(ids, id)
	}
	return ids
}

// load is a producer that goes on until it is stopped.
type load struct {
	stop func()
}

// load produces rate events a second, in turn for each endpoint.
func (f *flow) load(rate int, endpoints ...string) *load {
	const step = 20 * time.Millisecond
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(step)
		defer tick.Stop()
		begun, sent := time.Now(), 0
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			for due := int(time.Since(begun).Seconds() * float64(rate)); sent < due; sent++ {
				ep := endpoints[sent%len(endpoints)]
				id := fmt.Sprintf("load-%d", sent)
				body := f.body(id, 300)
				f.want(ep, "/test", id, body)
				f.client.Produce(f.t.Context(), f.record(ep, id, body), func(_ *kgo.Record, err error) {
					if err != nil {
						f.t.Errorf("produce: %v", err)
					}
				})
			}
		}
	}()
	l := &load{stop: sync.OnceFunc(func() {
		close(quit)
		<-done
		must(f.t, f.client.Flush(f.t.Context()))
	})}
	f.t.Cleanup(func() {
		select {
		case <-quit:
		default:
			close(quit)
			<-done
		}
	})
	return l
}
