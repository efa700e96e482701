package flowtest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// source makes a topic of three partitions that belongs to somebody else.
func (f *flow) source(name string) string {
	f.t.Helper()
	topic := f.cfg.Prefix + name
	_, err := kadm.NewClient(f.client).CreateTopic(f.t.Context(), 3, 1, nil, topic)
	must(f.t, err)
	testkit.AwaitTopics(f.t, f.cluster.brokers(), topic)
	return topic
}

// routes makes a process route these topics beside what it does anyway.
func routes(topics ...string) func(*config.Config) {
	return func(c *config.Config) {
		c.Roles = []string{app.RoleDispatcher, app.RoleReleaser, app.RoleRouter}
		c.Sources.Topics = topics
	}
}

// happened is a record of a source topic, and notes which endpoints must get it.
func (f *flow) happened(topic string, partition int32, id, tenant, kind string, body []byte, wantedBy ...string) *kgo.Record {
	for _, ep := range wantedBy {
		f.produced.Add("/"+ep, schemas.MessageID("/shop", id), body)
	}
	rec := &kgo.Record{Topic: topic, Partition: partition, Key: []byte("not an endpoint, " + id), Value: body}
	for _, h := range [][2]string{{"ce_specversion", "1.0"}, {"ce_id", id}, {"ce_source", "/shop"}, {"ce_type", kind}, {"ce_tenant", tenant}} {
		if h[1] != "" {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
		}
	}
	return rec
}

func subscribes(tenant string, types ...string) func(*registry.Endpoint) {
	return func(ep *registry.Endpoint) { ep.Tenant, ep.EventTypes = tenant, types }
}

func TestAnEventOfASourceGoesToEachSubscriberOfItsTenantOnce(t *testing.T) {
	f := newFlow(t)
	orders, plain := f.source("orders"), f.source("plain")
	f.endpoint("shop-orders", subscribes("shop", "order.*"))
	f.endpoint("shop-all", subscribes("shop", "*"))
	f.endpoint("bank-paid", subscribes("bank", "order.paid", "plain.changed"))
	f.ready(f.start(routes(orders, plain), func(c *config.Config) {
		c.Sources.Types = map[string]string{plain: "plain.changed"}
		c.Sources.Tenants = map[string]string{plain: "header:whose"}
	}))
	var recs []*kgo.Record
	for i := range 100 {
		at, id := int32(i%3), fmt.Sprint("e", i)
		body := func(n int) []byte { return f.body(fmt.Sprint(id, "-", n), 200) }
		recs = append(recs,
			f.happened(orders, at, id+"-1", "shop", "order.paid", body(1), "shop-orders", "shop-all"),
			f.happened(orders, at, id+"-2", "shop", "stock.low", body(2), "shop-all"),
			f.happened(orders, at, id+"-3", "bank", "order.paid", body(3), "bank-paid"),
			f.happened(orders, at, id+"-4", "bank", "order.made", body(4)),
			f.happened(orders, at, id+"-5", "", "order.paid", body(5)))
	}
	// A topic without CloudEvents headers: an event, the end of a key, and one record
	// that nobody can read.
	recs = append(recs, &kgo.Record{Topic: plain, Value: []byte(`"plain"`), Headers: []kgo.RecordHeader{{Key: "whose", Value: []byte("bank")}}},
		&kgo.Record{Topic: plain, Key: []byte("k")},
		&kgo.Record{Topic: plain, Key: []byte("k"), Headers: []kgo.RecordHeader{{Key: "ce_type", Value: []byte("plain.gone")}}})
	f.produced.Add("/bank-paid", schemas.MessageID(plain, plain+"-0-0"), []byte(`"plain"`))
	testkit.Produce(t, f.client, recs...)
	if c := f.delivered(2 * time.Minute); c.Repeats != 0 {
		t.Errorf("repeats without a reason: %s", c)
	}
	f.settled(30 * time.Second)
	letters := f.read(f.names().DLQ())
	if len(letters) != 1 {
		t.Fatalf("%d dead letters, want that of the event without a payload", len(letters))
	}
	l, err := schemas.ParseLetter(letters[0])
	if err != nil || l.Reason != schemas.ReasonMalformed || l.Origin.Topic != plain || l.Origin.Offset != 2 {
		t.Errorf("%v %+v", err, l)
	}
}

func TestARouterThatIsKilledAmidAFanOutLosesNothingAndTheOwnerDropsWhatItRepeats(t *testing.T) {
	t.Parallel() // most of it is waiting for a session to end
	f := newFlow(t)
	f.mortal()
	orders := f.source("orders")
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		f.endpoint(id, subscribes("shop", "order.*"))
	}
	f.ready(f.start()) // the owner lives through it all
	router := func(c *config.Config) {
		routes(orders)(c)
		c.Roles = []string{app.RoleRouter}
	}
	victim := f.spawn(router, func(c *config.Config) {
		c.Dispatcher.CommitInterval = time.Hour // nothing that it writes is committed, however long the kill takes
	})
	const events = 300
	var recs []*kgo.Record
	for i := range events {
		id := fmt.Sprint("e", i)
		recs = append(recs, f.happened(orders, int32(i%3), id, "shop", "order.paid", f.body(id, 4000), ids...))
	}
	for _, rec := range recs {
		f.client.Produce(t.Context(), rec, nil)
	}
	testkit.Eventually(t, 30*time.Second, func() string {
		if f.endOf(f.names().Deliveries()) == 0 {
			return "nothing is routed"
		}
		return ""
	})
	victim.kill()
	before := f.endOf(f.names().Deliveries())
	t.Logf("killed after %d of %d deliveries", before, len(ids)*events)

	f.ready(f.start(router))
	// All that the dead one has written is written again; it may have been everything.
	testkit.Eventually(t, time.Minute, func() string {
		if n, all := f.endOf(f.names().Deliveries()), before+int64(len(ids)*events); n < all {
			return fmt.Sprintf("%d records in deliveries, not %d", n, all)
		}
		return ""
	})
	f.delivered(2 * time.Minute)
	f.settled(30 * time.Second)
	if c := f.delivered(time.Minute); c.Repeats != 0 {
		t.Errorf("repeats reached the receiver: %s", c)
	}
}

func TestAnEventAfterARegistrationReachesTheNewEndpoint(t *testing.T) {
	f := newFlow(t)
	orders := f.source("orders")
	f.ready(f.start(routes(orders)))
	for i := range 10 {
		id := fmt.Sprint("new", i)
		f.endpoint(id, subscribes("shop", "order.paid"+id))
		testkit.Produce(t, f.client, f.happened(orders, int32(i%3), id, "shop", "order.paid"+id, []byte("{}"), id))
	}
	f.delivered(30 * time.Second)
}

func TestASourceThatIsMissingIsARefusalToStart(t *testing.T) {
	f := newFlow(t)
	cfg := f.cfg
	routes(f.cfg.Prefix + "nowhere")(&cfg)
	a, err := app.New(cfg, app.Options{Logger: f.logs, Version: "test"})
	must(t, err)
	err = a.Run(t.Context())
	var differs *kafka.CheckError
	if !errors.Is(err, app.ErrRefused) || !errors.As(err, &differs) || len(differs.Differences) != 1 ||
		differs.Differences[0].Topic != f.cfg.Prefix+"nowhere" || differs.Differences[0].Kind != kafka.KindMissing {
		t.Errorf("%v", err)
	}
}
