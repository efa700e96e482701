//go:build kafka

package dlq

import (
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { testkit.VerifyMain(realkafka.WithShared(m)) }

// start takes the shared real broker; a world has topics of its own there.
func (w *world) start() {
	w.Helper()
	c := realkafka.Shared(w.TB)
	w.broker = c
	w.names = schemas.Names{Prefix: "t" + rand.Text()[:10] + "."}
	w.cfg = kafka.Config{Brokers: c.Brokers(), Names: w.names, Logger: slog.New(slog.DiscardHandler)}
	adm, err := w.cfg.NewAdmin()
	if err != nil {
		w.Fatal(err)
	}
	defer adm.Close()
	var made []string
	for _, t := range topicsOf(w.names) {
		made = append(made, t.name)
		configs := map[string]*string{"cleanup.policy": kadm.StringPtr(t.policy), "message.timestamp.type": kadm.StringPtr("LogAppendTime"),
			"max.message.bytes": kadm.StringPtr("1200000")}
		if res, err := adm.CreateTopics(w.within(time.Minute), t.partitions, 1, configs, t.name); err != nil || res[t.name].Err != nil {
			w.Fatal(err, res[t.name].Err)
		}
	}
	testkit.AwaitTopics(w.TB, c.Brokers(), made...)
}
