package devmode

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Broker is the embedded broker: one node, on disk. Every write is synced before
// it is acknowledged, so that a kill loses nothing that was acknowledged.
type Broker struct {
	// Addr is where it speaks the Kafka protocol.
	Addr string

	cluster *kfake.Cluster
	lock    *os.File
}

// StartBroker starts the embedded broker on addr (host:port; port 0 picks one)
// with its data below dir, which is made if it is not there and continued if it
// is. Errors are one sentence each: the directory is in use by another process,
// cannot be written, or the port is taken.
func StartBroker(dir, addr string) (b *Broker, err error) {
	ln, listened := net.Listen("tcp", addr) //nolint:noctx // returns at once
	if _, err := os.Stat(filepath.Join(dir, lockName)); listened != nil && err != nil {
		return nil, notListening(addr, listened) // and nothing is made; a directory that is in use says more
	}
	defer func() {
		if err != nil && ln != nil {
			_ = ln.Close()
		}
	}()
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	if listened != nil {
		unlock(lock)
		return nil, notListening(addr, listened)
	}
	b = &Broker{lock: lock}
	b.cluster, err = kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.ClusterID("milena-dev"),
		kfake.DataDir(filepath.Join(dir, "kafka")),
		kfake.SyncWrites(),
		// One batch with an old timestamp would delete all that is before it, and a
		// laptop that slept a week would lose its endpoints: retention is off.
		kfake.BrokerConfigs(map[string]string{"log.retention.ms": "-1", "log.retention.bytes": "-1"}),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return ln, nil }),
	)
	if err != nil {
		unlock(lock)
		return nil, fmt.Errorf("the embedded broker cannot continue the data in %s: %w", dir, err)
	}
	b.Addr = b.cluster.ListenAddrs()[0]
	return b, nil
}

func notListening(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use by another program; give another address with --kafka-addr", addr)
	}
	return fmt.Errorf("cannot listen on %s for the embedded broker: %w", addr, err)
}

// Close stops the broker, saves its state and gives the directory free.
func (b *Broker) Close() {
	b.cluster.Close()
	unlock(b.lock)
}

const lockName = "lock"

// lockDir makes dir and takes its lock, which the system gives back when the
// process ends in whatever way.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the data directory cannot be made: %w", err)
	}
	name := filepath.Join(dir, lockName)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the data directory %s cannot be written; choose another with --data-dir", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the data directory cannot be locked: %w", err)
	}
	held, err := tryLock(f)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("the data directory %s cannot be locked: %w", dir, err)
	}
	if !held {
		owner, _ := os.ReadFile(name)
		_ = f.Close()
		who := "another process"
		if pid := strings.TrimSpace(string(owner)); pid != "" {
			who = "process " + pid
		}
		return nil, fmt.Errorf("%s is in use by %s (milena dev); stop it, or choose another directory with --data-dir", dir, who)
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("the data directory %s cannot be written; choose another with --data-dir: %w", dir, err)
	}
	return f, nil
}

// unlock keeps the file: removing it would let two processes lock two files of one name.
func unlock(f *os.File) { _ = f.Close() }
