//go:build !kafka

package registry

import (
	"testing"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
)

func TestMain(m *testing.M) { testkit.VerifyMain(m) }

// newConfig is a cluster for the tests that need nothing of its insides.
func newConfig(t testing.TB) kafka.Config {
	t.Helper()
	_, cfg := newCluster(t)
	return cfg
}
