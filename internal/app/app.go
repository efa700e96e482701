package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/milena-project/milena/dispatcher"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/metrics"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/tracing"
	"github.com/milena-project/milena/schemas"
)

// Options are what the process that runs an App has to say beside the configuration.
type Options struct {
	Logger    *slog.Logger
	Version   string
	Process   string                                   // names the process in claims, for people; default: host and process id
	Dialer    kafka.Dialer                             // to brokers; nil: TCP
	Connect   func(*kafka.Config)                      // the last word on how to connect: SASL mechanisms that need a library of their own; nil: nothing
	Egress    func(*egress.Config)                     // the last word on how endpoints are reached: a resolver, authorities; nil: nothing
	Consume   func(*consume.Config)                    // the last word on how topics are read: how often heartbeats are sent; nil: nothing
	OnAttempt func(a *schemas.Attempt)                 // sees every attempt; a must not be kept
	OnBreaker func(endpointID string, until time.Time) // an endpoint's breaker opened until then, or closed (zero)
	Traces    *tracing.Tracer                          // who made it closes it, after Run; nil: no traces
}

// App is one Milena process: the roles that its configuration names, on one Kafka
// cluster.
type App struct {
	cfg     config.Config
	opts    Options
	log     *slog.Logger
	kafka   kafka.Config
	names   schemas.Names
	metrics *metrics.Metrics

	writer   *kafka.Writer
	reader   *kafka.Reader // of hold and health; nil without a dispatcher
	follower *registry.Follower
	dispatch *dispatcher.Dispatcher // nil: not a role of this process
	loops    []role
	owned    owned         // by the dispatcher
	changing chan struct{} // has an element when the count of partitions may have changed

	successes atomic.Uint64 // the share that is logged; bits of a float64

	mu    sync.Mutex
	notUp error // why not ready: start-up has not ended, or shutdown has begun; guarded by mu

	refused refusals // topics that are too small for our records
}

// role is one consumer group that the process is a member of.
type role struct {
	name string
	loop runner
}

// runner is a consume.Loop or what wraps one.
type runner interface {
	Run(ctx context.Context) error
	Ready() error
	Alive() bool
	Figures() consume.Figures
}

// Roles of a process, as the configuration names them.
const (
	RoleDispatcher = string(kafka.RoleDispatcher)
	RoleReleaser   = string(kafka.RoleReleaser)
	RoleRouter     = string(kafka.RoleRouter)
)

// ErrRefused is in the chain of an error of Run that trying again does not mend:
// topics or keys are not as they must be.
var ErrRefused = errors.New("refused to run")

var errStarting = errors.New("starting")

// New builds an App from a checked configuration. Nothing is dialled and nothing
// is written until Run.
func New(cfg config.Config, opts Options) (*App, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Process == "" {
		opts.Process = ProcessName()
	}
	a := &App{
		cfg: cfg, opts: opts, log: opts.Logger, names: schemas.Names{Prefix: cfg.Prefix},
		notUp: errStarting, changing: make(chan struct{}, 1),
	}
	a.metrics = metrics.New(opts.Version, a.state)
	a.successes.Store(math.Float64bits(float64(cfg.Log.Successes)))
	a.kafka = cfg.KafkaConfig(opts.Logger)
	a.kafka.Hooks = append(a.kafka.Hooks, a.metrics.Kafka)
	if opts.Traces != nil {
		a.kafka.Hooks = append(a.kafka.Hooks, opts.Traces)
	}
	a.kafka.Dialer = opts.Dialer
	if opts.Connect != nil {
		opts.Connect(&a.kafka)
	}
	ring, err := registry.ParseKeyRing(cfg.Keyring)
	if err != nil {
		return nil, err
	}
	a.follower = registry.NewFollower(a.kafka, ring, registry.FollowerOptions{MaxAge: cfg.Retry.MaxAge})
	if a.writer, err = kafka.NewWriter(a.kafka); err != nil {
		return nil, err
	}
	if err := a.addRoles(); err != nil {
		if a.reader != nil {
			a.reader.Close()
		}
		_ = a.writer.Close(context.Background()) //nolint:forbidigo // nothing is buffered
		return nil, err
	}
	return a, nil
}

// ProcessName names this process for people: host and process id.
func ProcessName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

func (a *App) has(role string) bool { return slices.Contains(a.cfg.Roles, role) }

// roles are those that have something to do.
func (a *App) roles() []string {
	names := make([]string, len(a.loops))
	for i, r := range a.loops {
		names[i] = r.name
	}
	return names
}

func (a *App) addRoles() error {
	topics := a.cfg.TopicsConfig()
	fx := &effects{
		writer: a.writer, names: a.names, partitions: topics.Partitions, log: a.log, noticePartitions: topics.RetryPartitions, buried: a.metrics.Buried,
		refused: &a.refused,
	}
	parker, err := a.parker(fx)
	if err != nil {
		return err
	}
	if a.has(RoleDispatcher) {
		if err := a.addDispatcher(fx, parker); err != nil {
			return err
		}
	}
	if a.has(RoleReleaser) {
		if err := a.addReleaser(fx, parker); err != nil {
			return err
		}
	}
	if a.has(RoleRouter) {
		return a.addRouter(fx)
	}
	return nil
}

func (a *App) addDispatcher(fx *effects, parker dispatcher.Parker) error {
	way := a.cfg.EgressConfig()
	if a.opts.Egress != nil {
		a.opts.Egress(&way)
	}
	out, err := egress.New(way)
	if err != nil {
		return err
	}
	if a.reader, err = kafka.NewReader(a.kafka); err != nil {
		return err
	}
	c := a.cfg.Dispatcher
	a.dispatch = dispatcher.New(dispatcher.Config{
		MaxInFlight: c.MaxInFlight, LaneTime: c.LaneTime, QueuedBytes: int64(c.QueuedBytes), Unsettled: c.UnsettledPerPartition,
		DuplicateEntries: c.Duplicates.Entries, DuplicateAge: c.Duplicates.Age,
		TenantShare: float64(a.cfg.Tenants.MaxInFlightShare) / 100, TenantRate: float64(a.cfg.Tenants.Rate),
		MaxAge: a.cfg.Retry.MaxAge, UserAgent: "Milena/" + a.opts.Version,
	}, dispatcher.Deps{
		Transport: out, Classify: egress.Classify,
		Endpoints: endpoints{a.follower, a.cfg.Retry.MaxAge, out}, Placement: fx,
		Parker: parker, DeadLetters: fx, AttemptLog: fx, Forwarder: fx, Notifier: fx,
		HoldLog: &holdLog{effects: *fx, reader: a.reader, process: a.opts.Process},
		Hooks:   a.hooks(), Logger: a.log,
	})
	loop, err := consume.New(a.consumeConfig(RoleDispatcher, []string{a.names.Deliveries()}, func(as *consume.Assignment) consume.Intake {
		return a.assign(as)
	}))
	if err != nil {
		return err
	}
	a.loops = append(a.loops, role{RoleDispatcher, loop})
	return nil
}

// initialOffset reads the setting, which says none where consume has nothing.
func initialOffset(setting string) consume.InitialOffset {
	if setting == "none" {
		return consume.InitialNone
	}
	return consume.InitialOffset(setting)
}

func (a *App) consumeConfig(role string, topics []string, start func(*consume.Assignment) consume.Intake) consume.Config {
	c := consume.Config{
		Kafka: a.kafka, Group: a.names.Group(role), Topics: topics,
		InitialOffset: initialOffset(a.cfg.InitialOffset), GroupProtocol: consume.Protocol(a.cfg.Kafka.GroupProtocol),
		SessionTimeout: a.cfg.Kafka.SessionTimeout, CommitInterval: a.cfg.Dispatcher.CommitInterval,
		DrainBudget: a.cfg.Dispatcher.DrainBudget, Start: start, Logger: a.log,
		Assigned: func(consume.Partition) { a.metrics.Assigned(role) },
	}
	if a.opts.Consume != nil {
		a.opts.Consume(&c)
	}
	return c
}

// Run starts the process's roles and blocks until ctx ends, everything is wound
// up and the groups are left; it then returns nil. An error with ErrRefused in its
// chain says that nothing was begun and what must be mended.
func (a *App) Run(ctx context.Context) error {
	if a.reader != nil {
		defer a.reader.Close() // last: lanes read what is held until they have ended
	}
	stopServing, err := a.serveHTTP(ctx)
	if err != nil {
		a.closeWriter(ctx)
		return err
	}
	defer stopServing()

	// The registry and the writer outlive the roles: a shutdown still needs both.
	support, endSupport := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer endSupport()
	refused := make(chan error, 1)
	wg.Go(func() {
		if err := a.follower.Run(support); err != nil && support.Err() == nil {
			refuse(refused, err)
		}
	})
	if a.dispatch != nil {
		wg.Go(func() { a.dispatch.Run(support) })
		wg.Go(func() { a.countLetters(support) })
	}
	wg.Go(func() {
		if err := a.watchDrift(support); err != nil {
			refuse(refused, err)
		}
	})
	defer a.closeWriter(support)
	if err := a.awaitStart(ctx, refused); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to stop before the start had ended
		}
		return err
	}
	return a.runRoles(ctx, refused)
}

// refuse ends the process for a reason that trying again does not mend; the first one
// counts.
func refuse(refused chan<- error, err error) {
	select {
	case refused <- err:
	default:
	}
}

func (a *App) closeWriter(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writerClose)
	defer cancel()
	if err := a.writer.Close(ctx); err != nil {
		a.log.Warn("writes were not acknowledged before the end; their deliveries will be made again", "err", err)
	}
}

// writerClose is how long the last writes may take.
const writerClose = 5 * time.Second

func (a *App) runRoles(ctx context.Context, refused <-chan error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	errs := make([]error, len(a.loops))
	loops, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	a.setNotUp(nil) // before the loops: an assignment may have something to say against it
	for i, r := range a.loops {
		wg.Go(func() {
			if err := r.loop.Run(loops); err != nil {
				errs[i] = fmt.Errorf("%s: %w", r.name, err)
				cancel(errs[i])
			}
		})
	}
	a.checkGrace()
	a.log.Info("started", "roles", a.roles(), "version", a.opts.Version)
	if a.has(RoleRouter) && !slices.Contains(a.roles(), RoleRouter) {
		a.log.Info("the router has nothing to do: sources.topics names no topic")
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-refused:
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	a.setNotUp(errors.New("draining"))
	a.log.Info("stopping: what is in flight is finished, what waits is left where it is", "budget", a.cfg.Dispatcher.DrainBudget)
	if a.dispatch != nil {
		a.dispatch.BeginShutdown(a.cfg.Dispatcher.DrainBudget)
	}
	stop()
	wg.Wait()
	return errors.Join(err, errors.Join(errs...))
}

func (a *App) setNotUp(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notUp = err
}

// Ready says why this process is not ready: topics checked, registry caught up,
// brokers reachable, writes flowing, not draining.
func (a *App) Ready() error {
	a.mu.Lock()
	err := a.notUp
	a.mu.Unlock()
	if err != nil {
		return err
	}
	var all []error
	if err := a.follower.Ready(); err != nil {
		all = append(all, fmt.Errorf("registry: %w", err))
	}
	if err := a.writer.Blocked(); err != nil {
		all = append(all, err)
	}
	if err := a.refused.err(); err != nil {
		all = append(all, err)
	}
	for _, r := range a.loops {
		if err := r.loop.Ready(); err != nil {
			all = append(all, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	return errors.Join(all...)
}

// Alive reports whether the loops go round. It is false only when a restart would
// help; a Kafka that does not answer is no such case.
func (a *App) Alive() bool {
	for _, r := range a.loops {
		if !r.loop.Alive() {
			return false
		}
	}
	return true
}

// Load is how much the process has to do now; zero without a dispatcher.
func (a *App) Load() dispatcher.Load {
	if a.dispatch == nil {
		return dispatcher.Load{}
	}
	return a.dispatch.Load()
}
