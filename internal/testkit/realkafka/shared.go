package realkafka

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
)

var shared struct {
	mu      sync.Mutex
	cluster *Cluster
	err     error
}

// Shared returns one plain broker that all tests of the process share, started
// on first use. Tests keep apart by topic prefixes of their own and must not
// end it. The package's TestMain wraps its m by WithShared, which ends it.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil && shared.err == nil {
		if at := os.Getenv("MILENA_TEST_BROKERS"); at != "" {
			shared.cluster = &Cluster{external: strings.Split(at, ",")}
		} else {
			// It must outlive the test that happens to ask first.
			shared.cluster, shared.err = start(context.WithoutCancel(t.Context()), Config{})
		}
	}
	if shared.err != nil {
		skipOrFail(t, shared.err)
	}
	return shared.cluster
}

// Runner is what testing.M is to goleak.VerifyTestMain.
type Runner interface{ Run() int }

// WithShared wraps a package's testing.M: the shared cluster ends after the
// last test and before goleak looks.
func WithShared(m Runner) Runner { return sharedRunner{m} }

type sharedRunner struct{ inner Runner }

func (r sharedRunner) Run() int {
	code := r.inner.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster != nil && !shared.cluster.External() {
		shared.cluster.close()
		shared.cluster = nil
	}
	return code
}
