package dlq

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
)

func (w *world) admin() *kadm.Client {
	w.Helper()
	adm, err := w.cfg.NewAdmin()
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(adm.Close)
	return adm
}

func TestLettersFromBeforeThePartitionsWereRaisedAreTheirEndpointsStill(t *testing.T) {
	w := newWorld(t)
	endpoints := []string{"ep_1", "ep_2", "ep_3", "ep_4", "ep_5", "ep_6"}
	w.endpoint(endpoints...)
	w.many(60, endpoints...)
	for _, topic := range []string{w.names.DLQ(), w.names.Deliveries(), w.names.Attempts(), w.names.Health()} {
		if resp, err := w.admin().CreatePartitions(w.ctx(), 3, topic); err != nil || resp.Error() != nil {
			t.Fatal(err, resp.Error())
		}
		testkit.Eventually(t, 30*time.Second, func() string { // the broker hears of it from the controller
			if ends, err := w.open().reader.Ends(w.ctx(), topic); err != nil || len(ends) != 7 {
				return fmt.Sprintf("%s has %d partitions, %v", topic, len(ends), err)
			}
			return ""
		})
	}
	w.store = w.open() // of a process that was started after it
	for _, id := range endpoints {
		if n, _, err := w.store.Count(w.ctx(), Filter{Endpoints: []string{id}}); n != 10 || err != nil {
			t.Errorf("%s: %d letters, %v", id, n, err)
		}
	}
	for _, l := range w.written {
		if n, _, err := w.store.Count(w.ctx(), Filter{IDs: []string{l.ID()}}); n != 1 || err != nil {
			t.Errorf("%s: %d letters, %v", l.ID(), n, err)
		}
	}
	again := w.written[0].Letter // it is replayed, and dies where its endpoint is now
	again.Generation++
	rec := again.Record()
	writer, err := kafka.NewWriter(w.cfg, uncompressed)
	if err != nil {
		t.Fatal(err)
	}
	writer.Write(kafka.Message{Topic: w.names.DLQ(), Partition: kafka.Partition([]byte(again.EndpointID), 7), Key: rec.Key, Value: rec.Value, Headers: rec.Headers}, nil)
	if err := writer.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if deaths, err := w.store.Show(w.ctx(), again.ID()); err != nil || len(deaths) != 2 || deaths[0].Partition == deaths[1].Partition {
		t.Errorf("%+v %v", deaths, err)
	}
}
