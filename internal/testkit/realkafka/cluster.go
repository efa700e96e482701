package realkafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cluster is a running Kafka. Its methods are safe for concurrent use, also
// from goroutines: they return errors and never fail a test themselves.
// Brokers are counted from 0.
type Cluster struct {
	config   Config
	libs     string
	dir      string
	brokers  []*broker
	starter  *starter
	releases []func()
	external []string // addresses of MILENA_TEST_BROKERS; then brokers is empty
}

const (
	// Both are generous: two cores may start three JVMs beside a test suite.
	readyTimeout = 5 * time.Minute
	stopGrace    = 2 * time.Minute
	readyPoll    = 50 * time.Millisecond
)

// ErrExternal is what the methods that end brokers say of a cluster that
// MILENA_TEST_BROKERS names.
var ErrExternal = errors.New("realkafka: the cluster of MILENA_TEST_BROKERS is not ours to end")

// Start starts a cluster that ends with the test.
func Start(t testing.TB, config Config) *Cluster {
	t.Helper()
	if at := os.Getenv("MILENA_TEST_BROKERS"); at != "" && config.plain() {
		return &Cluster{external: strings.Split(at, ",")}
	}
	began := time.Now()
	c, err := start(t.Context(), config)
	if err != nil {
		skipOrFail(t, err)
	}
	t.Logf("Apache Kafka %s, %d broker(s), ready after %s", c.config.Version, c.config.Brokers, time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			for _, b := range c.brokers {
				t.Logf("broker %d logged:\n%s", b.id-1, b.logTail())
			}
		}
		c.close()
	})
	return c
}

// skipOrFail skips where this machine has no Java or Maven, unless it must.
func skipOrFail(t testing.TB, err error) {
	t.Helper()
	var lacks *unavailableError
	if errors.As(err, &lacks) && os.Getenv("MILENA_REQUIRE_KAFKA") != "1" {
		t.Skip(err)
	}
	t.Fatal(err)
}

func start(ctx context.Context, config Config) (_ *Cluster, err error) {
	if config, err = config.withDefaults(); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("java"); err != nil {
		return nil, &unavailableError{"Java is not installed"}
	}
	libs, err := artifacts(ctx, config.Version)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "milena-kafka-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{config: config, libs: libs, dir: dir, starter: newStarter()}
	defer func() {
		if err != nil {
			for _, b := range c.brokers {
				err = fmt.Errorf("%w\nbroker %d logged:\n%s", err, b.id-1, b.logTail())
			}
			c.close()
		}
	}()
	if err := c.layOut(ctx); err != nil {
		return nil, err
	}
	for _, b := range c.brokers {
		if err := b.launch(c.starter, c.libs, c.config.Brokers); err != nil {
			return nil, err
		}
	}
	return c, c.WaitReady(ctx)
}

// layOut reserves ports, writes the files and formats the storage of all brokers.
func (c *Cluster) layOut(ctx context.Context) error {
	var voters []string
	for i := range c.config.Brokers {
		b := &broker{id: i + 1, dir: filepath.Join(c.dir, fmt.Sprintf("broker-%d", i)), ports: map[Listener]int{}}
		for _, l := range append(c.config.listeners(), controller) {
			port, release, err := reservePort()
			if err != nil {
				return err
			}
			b.ports[l] = port
			c.releases = append(c.releases, release)
		}
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", b.id, b.ports[controller]))
		if err := os.MkdirAll(b.dir, 0o755); err != nil {
			return err
		}
		c.brokers = append(c.brokers, b)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] &= 0x7f           // an id that begins with a hyphen is an option to the storage tool
	clusterID := base64.RawURLEncoding.EncodeToString(id[:])
	errs := make([]error, len(c.brokers))
	var wg sync.WaitGroup
	for i, b := range c.brokers {
		wg.Go(func() {
			if errs[i] = c.config.writeFiles(b, strings.Join(voters, ",")); errs[i] == nil {
				errs[i] = b.format(ctx, c.libs, clusterID, &c.config)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Brokers returns the addresses of the plaintext listener.
func (c *Cluster) Brokers() []string { return c.Addrs(Plaintext) }

// Addrs returns the addresses of a listener, in the order of the brokers; none
// when the cluster has no such listener.
func (c *Cluster) Addrs(l Listener) []string {
	if c.external != nil && l == Plaintext {
		return c.external
	}
	var addrs []string
	for _, b := range c.brokers {
		if port, ok := b.ports[l]; ok {
			addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	return addrs
}

// External reports whether the cluster is that of MILENA_TEST_BROKERS: shared
// with others, and not ours to end. Tests need prefixes of their own there.
func (c *Cluster) External() bool { return c.external != nil }

// Version is the version of Kafka; empty for an external cluster.
func (c *Cluster) Version() string { return c.config.Version }

// WaitReady waits until the cluster has a controller and every broker whose
// process runs. An open port is not yet a ready cluster.
func (c *Cluster) WaitReady(ctx context.Context) error {
	if c.External() {
		return nil
	}
	var up []*broker
	for _, b := range c.brokers {
		if b.running() {
			up = append(up, b)
		}
	}
	for _, b := range up {
		if err := c.waitFor(ctx, b, up); err != nil {
			return err
		}
	}
	return nil
}

// waitFor waits until b answers metadata in which all of want and a controller are.
func (c *Cluster) waitFor(ctx context.Context, b *broker, want []*broker) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", b.ports[Plaintext])),
		kgo.RetryTimeout(time.Second), kgo.RequestTimeoutOverhead(5*time.Second), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		missing := missingFrom(ctx, cl, want)
		if missing == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-b.gone():
			return fmt.Errorf("broker %d ended while it started", b.id-1)
		case <-ctx.Done():
			return fmt.Errorf("broker %d is not ready: %w", b.id-1, errors.Join(missing, ctx.Err()))
		}
	}
}

// missingFrom says what cl's broker does not know of yet. It asks by a request
// of its own, and of that broker: kadm answers from the client's cache, and the client
// asks any broker that it has heard of.
func missingFrom(ctx context.Context, cl *kgo.Client, want []*broker) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none, where null means all
	resp, err := cl.SeedBrokers()[0].RetriableRequest(ctx, req)
	if err != nil {
		return err
	}
	meta := resp.(*kmsg.MetadataResponse)
	if meta.ControllerID < 0 {
		return errors.New("no controller yet")
	}
	have := map[int32]bool{}
	for _, b := range meta.Brokers {
		have[b.NodeID] = true
	}
	for _, b := range want {
		if !have[int32(b.id)] {
			return fmt.Errorf("broker %d is not in the metadata yet", b.id-1)
		}
	}
	return nil
}

func (c *Cluster) broker(i int) (*broker, error) {
	if c.External() {
		return nil, ErrExternal
	}
	if i < 0 || i >= len(c.brokers) {
		return nil, fmt.Errorf("realkafka: no broker %d", i)
	}
	return c.brokers[i], nil
}

// Stop ends a broker by SIGTERM, a controlled shutdown: it hands its
// leaderships over first. It returns when the process has ended.
func (c *Cluster) Stop(i int) error { return c.end(i, syscall.SIGTERM) }

// Kill ends a broker by SIGKILL, a crash.
func (c *Cluster) Kill(i int) error { return c.end(i, syscall.SIGKILL) }

func (c *Cluster) end(i int, sig syscall.Signal) error {
	b, err := c.broker(i)
	if err != nil {
		return err
	}
	return b.end(sig, stopGrace)
}

// Freeze stops a broker's process where it stands (SIGSTOP): its connections
// stay open and nobody answers.
func (c *Cluster) Freeze(i int) error { return c.signal(i, syscall.SIGSTOP) }

// Thaw continues a frozen broker (SIGCONT).
func (c *Cluster) Thaw(i int) error { return c.signal(i, syscall.SIGCONT) }

func (c *Cluster) signal(i int, sig syscall.Signal) error {
	b, err := c.broker(i)
	if err != nil {
		return err
	}
	return b.signal(sig)
}

// Running reports whether a broker's process runs (also when it is frozen).
func (c *Cluster) Running(i int) bool {
	b, err := c.broker(i)
	return err == nil && b.running()
}

// Restart starts a broker that is down again, on its ports and data, and waits
// until the cluster counts it in. A running one is stopped first.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	b, err := c.broker(i)
	if err != nil {
		return err
	}
	if b.running() {
		if err := b.end(syscall.SIGTERM, stopGrace); err != nil {
			return err
		}
	}
	if err := b.launch(c.starter, c.libs, c.config.Brokers); err != nil {
		return err
	}
	return c.waitFor(ctx, b, []*broker{b})
}

// close ends everything at once: the data is thrown away, so nothing needs an
// orderly end.
func (c *Cluster) close() {
	for _, b := range c.brokers {
		if err := b.end(syscall.SIGKILL, stopGrace); err != nil && !errors.Is(err, errDown) {
			fmt.Fprintln(os.Stderr, "realkafka:", err)
		}
	}
	c.starter.close()
	for _, release := range c.releases {
		release()
	}
	_ = os.RemoveAll(c.dir)
}
