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
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/consume"
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
	cluster  *cluster
	cfg      config.Config
	receiver *testkit.Receiver
	produced *testkit.Produced
	admin    *registry.Admin
	client   *kgo.Client
	logs     *slog.Logger
	opts     app.Options // of the processes in this test's process
	members  int         // processes started so far
}

// newFlow makes an installation with a prefix of its own and no endpoint.
func newFlow(t *testing.T, opts ...testkit.ReceiverOption) *flow {
	t.Helper()
	return newFlowOn(t, newCluster(t), opts...)
}

func newFlowOn(t *testing.T, c *cluster, opts ...testkit.ReceiverOption) *flow {
	t.Helper()
	key, err := registry.GenerateKey("test")
	must(t, err)
	loaded, err := config.Load(config.Options{
		Environ: []string{"MILENA_KAFKA_BROKERS=" + strings.Join(c.brokers(), ","), "MILENA_KEYRING=" + key},
	})
	must(t, err)
	f := &flow{
		t: t, cluster: c, cfg: loaded.Config,
		receiver: testkit.NewReceiver(t, opts...), produced: testkit.NewProduced(1024),
		logs: slog.New(slog.DiscardHandler),
		opts: app.Options{Consume: heartbeats},
	}
	if testing.Verbose() && os.Getenv("MILENA_LOG") != "" {
		f.logs = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	f.configure()
	f.makeTopics(c.keepForever)

	ring, err := registry.ParseKeyRing(f.cfg.Keyring)
	must(t, err)
	out, err := egress.New(f.cfg.EgressConfig())
	must(t, err)
	f.admin = registry.NewAdmin(f.cfg.KafkaConfig(f.logs), ring, registry.AdminOptions{CheckURL: out.CheckURL})
	t.Cleanup(f.admin.Close)
	f.client = testkit.NewClient(t, c.brokers(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(1<<20))
	return f
}

func (f *flow) configure() {
	c := &f.cfg
	c.Prefix = "t" + random() + "."
	c.Roles = []string{app.RoleDispatcher, app.RoleReleaser}
	c.InitialOffset = "earliest"
	c.Egress.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	c.Egress.AllowHTTP = true
	c.HTTP.Addr = ""
	c.Topics.Partitions = 4
	c.Kafka.SessionTimeout = calm
}

// calm is the group session timeout of processes that no test kills or freezes: no
// machine is so slow that one of them loses its partitions for it.
const calm = 40 * time.Second

// longest is the longest timeout of an attempt that may be registered.
const longest = time.Minute

// mortal is for tests that kill or freeze processes, and wait until the group notices.
func (f *flow) mortal() { f.cfg.Kafka.SessionTimeout = session }

// heartbeats come so often that members learn of each other's coming and going soon.
func heartbeats(c *consume.Config) { c.HeartbeatInterval = 300 * time.Millisecond }

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
	var made []string
	for _, r := range applied {
		made = append(made, r.Topic)
	}
	testkit.AwaitTopics(f.t, f.cluster.brokers(), made...)
}

func (f *flow) names() schemas.Names { return schemas.Names{Prefix: f.cfg.Prefix} }

// endpoint registers an endpoint whose path at the receiver is its id, and lets the
// receiver verify its signatures.
func (f *flow) endpoint(id string, edit ...func(*registry.Endpoint)) {
	f.t.Helper()
	// What a receiver holds open for a test does not end by itself.
	ep := registry.Endpoint{ID: id, URL: f.receiver.URL("/" + id), EventTypes: []string{"*"}, Timeout: schemas.Duration(longest)}
	for _, e := range edit {
		e(&ep)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), testkit.Patience*time.Minute)
	defer cancel()
	made, err := f.admin.Create(ctx, registry.Actor{Who: "test", Door: "test"}, ep)
	must(f.t, err)
	f.receiver.Secrets(f.t, "/"+id, made.Secrets[0].Secret)
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

// want notes that the endpoint must receive the event once more.
func (f *flow) want(endpoint, source, eventID string, body []byte) {
	f.produced.Add("/"+endpoint, schemas.MessageID(source, eventID), body)
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
			f.want(ep, "/test", id, body)
			recs = append(recs, f.record(ep, id, body))
		}
	}
	testkit.Produce(f.t, f.client, recs...)
}

func (f *flow) body(id string, size int) []byte {
	head := fmt.Sprintf(`{"id":%q,"fill":"`, id)
	return append([]byte(head), append(bytes.Repeat([]byte("x"), max(0, size-len(head)-2)), `"}`...)...)
}

// needsBudget skips a soak test that takes minutes whatever its budget.
func needsBudget(t *testing.T) {
	t.Helper()
	if testkit.SoakBudget(t) < 3*time.Minute {
		t.Skip("wants MILENA_SOAK=3m or more")
	}
}
