//go:build kafka

package registry

import (
	"crypto/rand"
	"testing"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { testkit.VerifyMain(realkafka.WithShared(m)) }

// newConfig is the shared broker with a prefix, and so a transactional id, of the test's own.
func newConfig(t testing.TB) kafka.Config {
	t.Helper()
	c := realkafka.Shared(t)
	cfg := kafka.Config{Brokers: c.Brokers(), ClientID: "test", Names: schemas.Names{Prefix: "t" + rand.Text()[:10] + "."}, Logger: testLogger()}
	createTopics(t, cfg)
	return cfg
}
