package flowtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// flow is one installation: a cluster with its topics, a receiver, the endpoints
// and the processes of one test.
type flow struct {
	t        *testing.T
	brokers  []string
	cfg      config.Config
	receiver *testkit.Receiver
	produced *testkit.Produced
	admin    *registry.Admin
	client   *kgo.Client
	logs     *slog.Logger
}

// newFlow makes an installation with a prefix of its own and no endpoint.
func newFlow(t *testing.T, opts ...testkit.ReceiverOption) *flow {
	t.Helper()
	brokers, forever := newCluster(t)
	return newFlowOn(t, brokers, forever, opts...)
}

func newFlowOn(t *testing.T, brokers []string, keepForever bool, opts ...testkit.ReceiverOption) *flow {
	t.Helper()
	key, err := registry.GenerateKey("test")
	must(t, err)
	loaded, err := config.Load(config.Options{
		Environ: []string{"MILENA_KAFKA_BROKERS=" + strings.Join(brokers, ","), "MILENA_KEYRING=" + key},
	})
	must(t, err)
	f := &flow{
		t: t, brokers: brokers, cfg: loaded.Config,
		receiver: testkit.NewReceiver(t, opts...), produced: testkit.NewProduced(1024),
		logs: slog.New(slog.DiscardHandler),
	}
	if testing.Verbose() && os.Getenv("MILENA_LOG") != "" {
		f.logs = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	c := &f.cfg
	c.Prefix = "t" + random() + "."
	c.Roles = []string{app.RoleDispatcher, app.RoleReleaser}
	c.InitialOffset = "earliest"
	c.Egress.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	c.Egress.AllowHTTP = true
	c.HTTP.Addr = ""
	c.Topics.Partitions = 4
	c.Kafka.SessionTimeout = 6 * time.Second
	f.makeTopics(keepForever)

	ring, err := registry.ParseKeyRing(c.Keyring)
	must(t, err)
	out, err := egress.New(c.EgressConfig())
	must(t, err)
	f.admin = registry.NewAdmin(c.KafkaConfig(f.logs), ring, registry.AdminOptions{CheckURL: out.CheckURL})
	t.Cleanup(f.admin.Close)
	f.client = testkit.NewClient(t, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return f
}

func random() string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *flow) makeTopics(keepForever bool) {
	f.t.Helper()
	adm, err := f.cfg.KafkaConfig(f.logs).NewAdmin()
	must(f.t, err)
	defer adm.Close()
	topics := f.cfg.TopicsConfig()
	topics.KeepForever = keepForever
	plan, err := kafka.MakePlan(f.t.Context(), adm, topics)
	must(f.t, err)
	applied, err := plan.Apply(f.t.Context(), adm)
	must(f.t, err)
	if !applied.Complete() {
		f.t.Fatalf("topics:\n%s", applied)
	}
}

func (f *flow) names() schemas.Names { return schemas.Names{Prefix: f.cfg.Prefix} }

// endpoint registers an endpoint whose path at the receiver is its id, and lets the
// receiver verify its signatures.
func (f *flow) endpoint(id string, edit ...func(*registry.Endpoint)) {
	f.t.Helper()
	ep := registry.Endpoint{ID: id, URL: f.receiver.URL("/" + id), EventTypes: []string{"*"}}
	for _, e := range edit {
		e(&ep)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	made, err := f.admin.Create(ctx, registry.Actor{Who: "test", Door: "test"}, ep)
	must(f.t, err)
	f.receiver.Secrets(f.t, "/"+id, made.Secrets[0].Secret)
}

// process is one Milena in this test's process.
type process struct {
	app  *app.App
	stop context.CancelFunc
	done chan struct{}
	err  error
}

// start runs a process until the test ends or it is stopped.
func (f *flow) start(edit ...func(*config.Config)) *process {
	f.t.Helper()
	return f.startWith(nil, edit...)
}

// startWith runs a process that reaches the brokers by a dialer of its own.
func (f *flow) startWith(dialer kafka.Dialer, edit ...func(*config.Config)) *process {
	f.t.Helper()
	cfg := f.cfg
	for _, e := range edit {
		e(&cfg)
	}
	a, err := app.New(cfg, app.Options{Logger: f.logs, Version: "test", Dialer: dialer})
	must(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{app: a, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = a.Run(ctx)
	}()
	f.t.Cleanup(func() { p.end(f.t) })
	return p
}

// end stops a process as SIGTERM does and waits for it.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.stop()
	<-p.done
	if p.err != nil {
		t.Errorf("process ended with %v", p.err)
	}
}

// ready waits until the process says that it is ready.
func (f *flow) ready(p *process) {
	f.t.Helper()
	testkit.Eventually(f.t, 30*time.Second, func() string {
		if err := p.app.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// record is a producer's record for an endpoint, in the endpoint's partition.
func (f *flow) record(endpoint, eventID string, body []byte, headers ...kgo.RecordHeader) *kgo.Record {
	key := []byte(endpoint)
	return &kgo.Record{
		Topic: f.names().Deliveries(), Partition: kafka.Partition(key, int32(f.cfg.Topics.Partitions)),
		Key: key, Value: body,
		Headers: append([]kgo.RecordHeader{
			{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte(eventID)},
			{Key: "ce_source", Value: []byte("/test")}, {Key: "ce_type", Value: []byte("thing.happened")},
		}, headers...),
	}
}

// send produces n events of about size bytes for each endpoint and notes them as
// wanted at the receiver.
func (f *flow) send(n, size int, endpoints ...string) {
	f.t.Helper()
	recs := make([]*kgo.Record, 0, n*len(endpoints))
	for i := range n {
		for _, ep := range endpoints {
			id := fmt.Sprintf("%s-%s-%d", ep, random(), i)
			body := f.body(id, size)
			f.produced.Add("/"+ep, schemas.MessageID("/test", id), body)
			recs = append(recs, f.record(ep, id, body))
		}
	}
	testkit.Produce(f.t, f.client, recs...)
}

func (f *flow) body(id string, size int) []byte {
	head := fmt.Sprintf(`{"id":%q,"fill":"`, id)
	return append([]byte(head), append(bytes.Repeat([]byte("x"), max(0, size-len(head)-2)), `"}`...)...)
}

// delivered waits until the receiver has everything that was produced.
func (f *flow) delivered(timeout time.Duration) testkit.Comparison {
	f.t.Helper()
	var c testkit.Comparison
	testkit.Eventually(f.t, timeout, func() string {
		if c = testkit.Compare(f.produced, f.receiver.Log); !c.Complete() {
			return c.String()
		}
		return ""
	})
	if n := f.receiver.Log.Invalid(); n > 0 {
		f.t.Errorf("%d signatures did not verify", n)
	}
	return c
}

// settled waits until the dispatcher's group has committed the end of deliveries.
func (f *flow) settled(timeout time.Duration) {
	f.t.Helper()
	testkit.Eventually(f.t, timeout, func() string {
		lag, err := f.lag()
		if err != nil {
			return err.Error()
		}
		if lag != 0 {
			return fmt.Sprintf("%d records of deliveries are not committed", lag)
		}
		return ""
	})
}

func (f *flow) lag() (int64, error) {
	adm, err := f.cfg.KafkaConfig(f.logs).NewAdmin()
	if err != nil {
		return 0, err
	}
	defer adm.Close()
	ends, err := adm.ListEndOffsets(f.t.Context(), f.names().Deliveries())
	if err != nil {
		return 0, err
	}
	commits, err := adm.FetchOffsets(f.t.Context(), f.names().Group(app.RoleDispatcher))
	if err != nil {
		return 0, err
	}
	lag := int64(0)
	for _, e := range ends.Offsets().Sorted() {
		at := int64(0)
		if c, ok := commits.Lookup(e.Topic, e.Partition); ok {
			at = max(at, c.At)
		}
		lag += e.At - at
	}
	return lag, nil
}

// read returns all records of a topic, tombstones too.
func (f *flow) read(topic string) []schemas.Record {
	f.t.Helper()
	r, err := kafka.NewReader(f.cfg.KafkaConfig(f.logs))
	must(f.t, err)
	defer r.Close()
	ends, err := r.HighWatermarks(f.t.Context(), topic)
	must(f.t, err)
	var mu sync.Mutex
	var all []schemas.Record
	for p, end := range ends {
		must(f.t, r.ReadForwards(f.t.Context(), topic, int32(p), 0, end, 1<<20, func(recs []schemas.Record) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, recs...)
			return nil
		}))
	}
	return all
}
