//go:build kafka

package flowtest

import (
	"testing"

	"github.com/milena-project/milena/internal/testkit/realkafka"
)

// newCluster returns the real broker that the tests of this process share; they
// keep apart by prefix.
func newCluster(t *testing.T) (brokers []string, keepForever bool) {
	t.Helper()
	return realkafka.Shared(t).Brokers(), false
}
