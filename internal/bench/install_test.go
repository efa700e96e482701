package bench

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

// installation is one set of topics on an embedded broker.
type installation struct {
	tb   testing.TB
	cfg  config.Config
	fake *testkit.Fake
	cl   *kgo.Client
	opts app.Options // of its processes
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// install makes an installation with a prefix of its own.
func install(tb testing.TB, fake *testkit.Fake, prefix string) *installation {
	tb.Helper()
	key, err := registry.GenerateKey("bench")
	check(tb, err)
	loaded, err := config.Load(config.Options{Environ: []string{"MILENA_KAFKA_BROKERS=" + fake.Brokers()[0], "MILENA_KEYRING=" + key}})
	check(tb, err)
	cfg := loaded.Config
	cfg.Prefix = prefix
	cfg.Roles = []string{app.RoleDispatcher, app.RoleReleaser}
	cfg.InitialOffset = "earliest"
	cfg.Egress.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.Egress.AllowHTTP = true
	cfg.HTTP.Addr = ""
	adm, err := cfg.KafkaConfig(quiet()).NewAdmin()
	check(tb, err)
	defer adm.Close()
	topics := cfg.TopicsConfig()
	topics.KeepForever = true
	plan, err := kafka.MakePlan(tb.Context(), adm, topics)
	check(tb, err)
	_, err = plan.Apply(tb.Context(), adm)
	check(tb, err)
	cl := fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(200_000))
	return &installation{tb: tb, cfg: cfg, fake: fake, cl: cl}
}

func (in *installation) names() schemas.Names { return schemas.Names{Prefix: in.cfg.Prefix} }

func endpointID(i int) string { return "ep" + strconv.Itoa(i) }

// register writes n endpoints as administration would have, in one go.
func (in *installation) register(n int, edit func(i int, ep *schemas.Endpoint)) {
	in.tb.Helper()
	ring, err := registry.ParseKeyRing(in.cfg.Keyring)
	check(in.tb, err)
	recs := make([]*kgo.Record, n)
	for i := range n {
		ep := schemas.Endpoint{
			ID: endpointID(i), EventTypes: []string{"*"}, State: schemas.StateEnabled, Version: 1,
			CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(),
		}
		edit(i, &ep)
		secret, err := signer.GenerateSecret(32)
		check(in.tb, err)
		sealed, err := ring.Seal(ep.ID, secret) // for the id that edit gave it
		check(in.tb, err)
		ep.Secrets = []schemas.Secret{{Sealed: sealed, CreatedAt: ep.CreatedAt}}
		value, err := json.Marshal(ep)
		check(in.tb, err)
		recs[i] = &kgo.Record{Topic: in.names().Endpoints(), Key: []byte(ep.ID), Value: value}
	}
	check(in.tb, in.cl.ProduceSync(in.tb.Context(), recs...).FirstErr())
}

// record is one event for an endpoint; its id says when it was made.
func (in *installation) record(endpoint, id string, body []byte) *kgo.Record {
	key := []byte(endpoint)
	return &kgo.Record{
		Topic: in.names().Deliveries(), Partition: kafka.Partition(key, int32(in.cfg.Topics.Partitions)), Key: key, Value: body,
		Headers: []kgo.RecordHeader{
			{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte(id)},
			{Key: "ce_source", Value: []byte("/bench")}, {Key: "ce_type", Value: []byte("thing.happened")},
		},
	}
}

func (in *installation) produce(r *kgo.Record) {
	in.cl.Produce(in.tb.Context(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			in.tb.Error(err)
		}
	})
}

// run starts a process and returns what stops it.
func (in *installation) run() (stop func()) {
	in.tb.Helper()
	opts := in.opts
	opts.Logger, opts.Version = quiet(), "bench"
	a, err := app.New(in.cfg, opts)
	check(in.tb, err)
	ctx, cancel := newContext()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	testkit.Eventually(in.tb, time.Minute, func() string {
		if err := a.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
	return func() {
		cancel()
		check(in.tb, <-done)
	}
}
