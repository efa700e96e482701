//go:build !kafka

package flowtest

import (
	"testing"

	"github.com/milena-project/milena/internal/testkit"
)

// newCluster starts a broker for one test.
func newCluster(t *testing.T) (brokers []string, keepForever bool) {
	t.Helper()
	return testkit.NewFake(t).Brokers(), true
}
