package devmode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/publish"
	"github.com/milena-project/milena/schemas"
)

// Defaults of Config.
const (
	DefaultDataDir   = ".milena"
	DefaultKafkaAddr = "127.0.0.1:19092"
	DefaultRate      = 2 // events a second
	DefaultHTTPAddr  = "127.0.0.1:8080"
	DefaultLogLevel  = "error" // the screen shows every attempt
)

// receiverAddr is tried first, so that the URLs of the sample endpoints stay the
// same from start to start.
const receiverAddr = "127.0.0.1:19093"

// System is Milena as it runs in production.
type System interface {
	// Run blocks until ctx ends and all is wound up.
	Run(ctx context.Context) error
	// Ready is nil while it works.
	Ready() error
	Gauges() Gauges
}

// Config is what `milena dev` is asked for.
type Config struct {
	DataDir   string  // default DefaultDataDir
	KafkaAddr string  // default DefaultKafkaAddr; port 0 picks one
	Rate      float64 // events a second; 0: as fast as it goes
	Events    int     // stop sending after so many; 0: never
	Exit      bool    // end when all Events are delivered and verified
	ForwardTo string  // URL of an own receiver that gets all events; empty: the sample endpoints

	Flags    *pflag.FlagSet // settings of package config that were given
	Environ  []string
	Out      io.Writer  // what people read
	Log      io.Writer  // what the process logs, where Out is no terminal
	Terminal bool       // Out is one
	Color    bool       // lines are coloured
	Width    func() int // of the terminal; nil: unknown

	// Start builds the system, which has to call the hooks.
	Start func(cfg *config.Loaded, log *slog.Logger, on Hooks) (System, error)
}

// Hooks hear of what the system does, on its goroutines; they do not block.
type Hooks struct {
	Attempt func(a *schemas.Attempt)                 // each attempt
	Breaker func(endpointID string, until time.Time) // a breaker opened until then, or closed (zero)
}

// ErrNotAll is the end of a run with Exit in which not every event was delivered
// and verified.
var ErrNotAll = errors.New("not all events were delivered and verified")

func (c Config) withDefaults() Config {
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir
	}
	if c.KafkaAddr == "" {
		c.KafkaAddr = DefaultKafkaAddr
	}
	if c.Width == nil {
		c.Width = func() int { return 0 }
	}
	return c
}

// dev is one run. Its parts are started in the order of the fields and ended in
// the opposite one.
type dev struct {
	cfg      Config
	broker   *Broker
	loaded   *config.Loaded
	kafka    kafka.Config
	receiver *Receiver
	writer   *kafka.Writer
	secret   string // of Forward
	show     *show
	goal     *goal
	prefix   string // of the ids of this run's events
}

// Run runs everything until ctx ends, or until the goal of Exit is reached.
func Run(ctx context.Context, c Config) error {
	d := &dev{cfg: c.withDefaults()}
	d.goal = newGoal(d.target(), c.Events)
	began := time.Now()
	var err error
	if d.broker, err = StartBroker(d.cfg.DataDir, d.cfg.KafkaAddr); err != nil {
		return err
	}
	defer d.broker.Close()
	if err := d.configure(); err != nil {
		return err
	}
	if err := probeHTTP(d.loaded.HTTP.Addr); err != nil {
		return err
	}
	if err := d.applyTopics(ctx); err != nil {
		return err
	}
	if d.receiver, err = startReceiver(); err != nil {
		return err
	}
	d.receiver.Accepted = d.goal.accepted
	defer d.receiver.Close(context.WithoutCancel(ctx))
	endpoints, err := d.register(ctx)
	if err != nil {
		return err
	}
	d.prefix = publish.NewID() + "-"
	d.show = newShow(&d.cfg, d.prefix)
	d.banner(endpoints)
	return d.run(ctx, began)
}

// target is the endpoint whose deliveries decide whether an event has arrived.
func (d *dev) target() string {
	if d.cfg.ForwardTo != "" {
		return Forward
	}
	return Good
}

func startReceiver() (*Receiver, error) {
	if r, err := StartReceiver(receiverAddr); err == nil {
		return r, nil
	}
	return StartReceiver("127.0.0.1:0")
}

// configure writes milena.yaml and reads it as every other command does. It is written
// again where a flag or the environment gives another address than the default: whoever
// reads it in this directory is told where this process is.
func (d *dev) configure() (err error) {
	name, err := prepare(d.cfg.DataDir, d.broker.Addr, DefaultHTTPAddr)
	if err != nil {
		return err
	}
	d.loaded, err = config.Load(config.Options{Flags: d.cfg.Flags, Environ: d.cfg.Environ, File: name,
		Fixed: map[string]string{"kafka.brokers": d.broker.Addr}, FixedBy: "milena dev", NeedBrokers: true})
	if err != nil {
		return err
	}
	if addr := d.loaded.HTTP.Addr; addr != DefaultHTTPAddr {
		if _, err := prepare(d.cfg.DataDir, d.broker.Addr, addr); err != nil {
			return err
		}
	}
	if d.loaded.Source("log.level") == "default" {
		d.loaded.Log.Level = DefaultLogLevel
	}
	d.kafka = d.loaded.KafkaConfig(slog.New(slog.DiscardHandler))
	return nil
}

// probeHTTP finds a taken port before anything is made and said, in the words of
// dev's own flags.
func probeHTTP(addr string) error {
	if addr == "" {
		return nil
	}
	ln, err := net.Listen("tcp", addr) //nolint:noctx // returns at once
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use by another program; give another address with --http-addr", addr)
	}
	if err != nil {
		return fmt.Errorf("cannot listen on %s for /metrics and /readyz (--http-addr): %w", addr, err)
	}
	return ln.Close()
}

func (d *dev) applyTopics(ctx context.Context) error {
	adm, err := d.kafka.NewAdmin()
	if err != nil {
		return err
	}
	defer adm.Close()
	topics := d.loaded.TopicsConfig()
	topics.KeepForever = true
	plan, err := kafka.MakePlan(ctx, adm, topics)
	if err != nil {
		return err
	}
	applied, err := plan.Apply(ctx, adm)
	if err == nil && !applied.Complete() {
		err = fmt.Errorf("the topics of the embedded broker cannot be made as they must be:\n%s", applied)
	}
	return err
}

// run starts Milena and the feed, and winds up in the opposite order.
func (d *dev) run(asked context.Context, began time.Time) error {
	ctx, cancel := context.WithCancelCause(asked)
	defer cancel(nil)
	system, err := d.cfg.Start(d.loaded, d.logger(), Hooks{Attempt: d.attempted, Breaker: d.show.breaker})
	if err != nil {
		return err
	}
	d.show.gauges = system.Gauges
	var group sync.WaitGroup
	ended := make(chan struct{})
	group.Go(func() {
		defer close(ended)
		if err := system.Run(ctx); err != nil {
			cancel(err)
		}
	})
	group.Go(func() { d.show.run(ended) })
	if err := d.awaitReady(ctx, system); err == nil {
		d.show.screen.line(fmt.Sprintf("Ready after %.1f s.", time.Since(began).Seconds()))
		err = d.feedAll(ctx)
		if err != nil {
			cancel(err)
		}
		if d.cfg.Exit && d.goal.wait(ctx) {
			cancel(errReached)
		}
	}
	<-ctx.Done()
	cause := context.Cause(ctx)
	group.Wait()
	d.show.end(d.receiver.Count)
	switch {
	case asked.Err() == nil && !errors.Is(cause, errReached):
		return cause
	case d.cfg.Exit && !d.goal.reached(d.receiver):
		return fmt.Errorf("%w: %s", ErrNotAll, d.goal)
	}
	return nil
}

var errReached = errors.New("all events are settled")

// attempted hears of each attempt, on a goroutine of the dispatcher.
func (d *dev) attempted(a *schemas.Attempt) {
	d.goal.attempted(a)
	d.show.attempted(a)
}

func (d *dev) awaitReady(ctx context.Context, system System) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for system.Ready() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

func (d *dev) logger() *slog.Logger {
	out := d.cfg.Log
	if d.cfg.Terminal {
		out = d.show.screen
	}
	return d.loaded.Log.NewLogger(out, nil)
}

// feedAll sends sample events until there are enough or ctx ends.
func (d *dev) feedAll(ctx context.Context) (err error) {
	if d.writer, err = kafka.NewWriter(d.kafka); err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if closed := d.writer.Close(closing); err == nil {
			err = closed
		}
	}()
	adm, err := d.kafka.NewAdmin()
	if err != nil {
		return err
	}
	layout, err := kafka.TopicLayout(ctx, adm, d.kafka.Names.Deliveries())
	adm.Close()
	if err != nil {
		return ignoreCancelled(ctx, err)
	}
	f := feed{dev: d, publisher: &publish.Publisher{Writer: d.writer, Names: d.kafka.Names, Topic: layout}}
	return f.run(ctx)
}

// ignoreCancelled drops the error of work that was interrupted on purpose.
func ignoreCancelled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
