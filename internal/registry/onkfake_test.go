//go:build !kafka

package registry

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/milena-project/milena/internal/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newConfig is a cluster for the tests that need nothing of its insides.
func newConfig(t testing.TB) kafka.Config {
	t.Helper()
	_, cfg := newCluster(t)
	return cfg
}
