//go:build kafka

package flowtest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/config"
)

// The other group protocol, KIP-848: two processes share the work, one of them leaves,
// and the promises are the same.
func TestTheConsumerProtocolDeliversAllTheSame(t *testing.T) {
	if strings.HasPrefix(os.Getenv("MILENA_TEST_KAFKA_VERSION"), "3.") {
		t.Skip("kafka.group_protocol=consumer is for Kafka 4.3 and later")
	}
	f := newFlow(t)
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, id := range ids {
		f.endpoint(id)
	}
	protocol := func(c *config.Config) { c.Kafka.GroupProtocol = "consumer" }
	first := f.start(protocol)
	f.ready(first)
	f.send(50, 1000, ids...)
	if c := f.delivered(time.Minute); c.Repeats != 0 {
		t.Errorf("repeats without a reason: %s", c)
	}
	second := f.start(protocol)
	f.ready(second)
	f.send(50, 1000, ids...)
	first.end(t)
	f.send(50, 1000, ids...)
	t.Log(f.delivered(time.Minute))
	f.settled(10 * time.Second)
}
