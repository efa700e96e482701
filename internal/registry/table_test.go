package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
)

func openTable(t testing.TB, cfg kafka.Config) *Table {
	t.Helper()
	tab := OpenTable(cfg, cfg.Names.Runs())
	t.Cleanup(tab.Close)
	return tab
}

// increment reads a number and writes the next one.
func increment(key string) func(Rows) ([]Change, error) {
	return func(rows Rows) ([]Change, error) {
		n := 0
		if row, ok := rows.Get(key); ok {
			n, _ = strconv.Atoi(string(row.Value))
		}
		return []Change{{Key: key, Value: []byte(strconv.Itoa(n + 1))}}, nil
	}
}

func value(t testing.TB, tab *Table, key string) string {
	t.Helper()
	var v string
	if err := tab.Read(t.Context(), func(rows Rows) error {
		row, _ := rows.Get(key)
		v = string(row.Value)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestConcurrentSwapsOfManyProcessesLoseNothing(t *testing.T) {
	cfg := newConfig(t)
	const writers, each = 8, 5
	var wg sync.WaitGroup
	began := time.Now()
	for range writers {
		tab := openTable(t, cfg) // a table of its own is what another process has
		wg.Go(func() {
			for range each {
				if err := tab.Swap(t.Context(), increment("n")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d swaps of %d writers in %s", writers*each, writers, time.Since(began))
	if got := value(t, openTable(t, cfg), "n"); got != strconv.Itoa(writers*each) {
		t.Fatalf("after %d increments: %s", writers*each, got)
	}
}

// Another writer comes while one stands still between two of its steps.
func TestFrozenWriterIsFencedAndStartsAgain(t *testing.T) {
	for _, at := range []step{stepFence, stepCheck, stepWrite, stepCommit, stepReturn} {
		t.Run(string(at), func(t *testing.T) {
			cfg := newConfig(t)
			frozen, other := openTable(t, cfg), openTable(t, cfg)
			once := false
			frozen.step = func(s step) {
				if s == at && !once {
					once = true
					if err := other.Swap(t.Context(), increment("n")); err != nil {
						t.Error(err)
					}
				}
			}
			if err := frozen.Swap(t.Context(), increment("n")); err != nil {
				t.Fatal(err)
			}
			if got := value(t, other, "n"); got != "2" {
				t.Fatalf("two increments came to %s", got)
			}
		})
	}
}

// errCrash stands for the end of a process between two steps.
var errCrash = errors.New("crash")

// crashing gives a process a network that can be cut, and does not come back.
func crashing(cfg kafka.Config) (kafka.Config, func()) {
	var mu sync.Mutex
	var conns []net.Conn
	down := false
	cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && down {
			_ = c.Close()
			return nil, errCrash
		}
		conns = append(conns, c)
		return c, err
	}
	return cfg, func() {
		mu.Lock()
		defer mu.Unlock()
		down = true
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}
}

func TestCrashBetweenAnyTwoStepsLeavesAllOrNothing(t *testing.T) {
	for _, at := range []step{stepFence, stepCheck, stepWrite, stepCommit, stepReturn} {
		t.Run(string(at), func(t *testing.T) {
			cfg := newConfig(t)
			// A broker's first transaction makes the transaction log, which takes seconds.
			if err := openTable(t, cfg).Swap(t.Context(), increment("first")); err != nil {
				t.Fatal(err)
			}
			mortal, crash := crashing(cfg)
			tab := openTable(t, mortal)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tab.step = func(s step) {
				if s == at {
					crash()
					cancel()
				}
			}
			err := tab.Swap(ctx, func(rows Rows) ([]Change, error) {
				changes, err := increment("n")(rows)
				return append(changes, Change{Topic: cfg.Names.Audit(), Key: "n", Value: []byte("1")}), err
			})
			tab.Close()
			if err == nil && at != stepReturn { // there it may have read its record back already
				t.Fatal("a crashed swap returned nil")
			}
			// The transaction of a process that is gone holds nobody up for its 10 s.
			began := time.Now()
			next := openTable(t, cfg)
			if err := next.Swap(t.Context(), increment("n")); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > transactionTimeout*9/10 {
				t.Errorf("the next swap took %s", took)
			}
			got := value(t, next, "n")
			audits := len(readAll(t, cfg, cfg.Names.Audit()))
			committed := got == "2" && audits == 1
			undone := got == "1" && audits == 0
			if at != stepReturn && !undone || !committed && !undone || err == nil && !committed { // after the commit both can be: see readBack
				t.Fatalf("the crashed swap returned %v, then the value is %s with %d audit records", err, got, audits)
			}
			var unknown *UnknownOutcomeError
			if sent := at == stepCommit || at == stepReturn; err != nil && errors.As(err, &unknown) != sent {
				t.Errorf("the crashed swap returned %v", err)
			}
		})
	}
}

// The answer to EndTxn is lost: committed or not, the change is made exactly once.
func TestLostCommitAnswerIsResolved(t *testing.T) {
	for _, reached := range []bool{false, true} {
		t.Run(fmt.Sprint("reached the broker: ", reached), func(t *testing.T) {
			c, cfg := newCluster(t)
			tab := openTable(t, cfg)
			lost := 0
			c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				if lost++; lost > 1 || reached {
					return nil, nil, false
				}
				return nil, errors.New("connection lost"), true
			})
			if reached {
				once := false
				tab.step = func(s step) {
					if s == stepReturn && !once { // forget that it was committed
						once = true
						panic(errCrash)
					}
				}
				swapUntilDone(t, tab)
			} else if err := tab.Swap(t.Context(), increment("n")); err != nil {
				t.Fatal(err)
			}
			if got := value(t, tab, "n"); got != "1" {
				t.Fatalf("one increment came to %s", got)
			}
		})
	}
}

// swapUntilDone runs the tries of one swap, taking a panic of a step for an error
// after the commit.
func swapUntilDone(t *testing.T, tab *Table) {
	t.Helper()
	s := swap{table: tab, id: "the-change", check: increment("n")}
	tab.watch(s.id)
	for range 3 {
		err := func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = errCrash
				}
			}()
			return s.try(t.Context())
		}()
		if err == nil {
			return
		}
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
	}
	t.Fatal("never done")
}

func TestSwapRefusesWhatItCouldNotReadBack(t *testing.T) {
	cfg := newConfig(t)
	tab := openTable(t, cfg)
	err := tab.Swap(t.Context(), func(Rows) ([]Change, error) {
		return []Change{{Topic: cfg.Names.Audit(), Key: "x", Value: []byte("x")}}, nil
	})
	if err == nil {
		t.Fatal("accepted")
	}
	if err := tab.Swap(t.Context(), func(Rows) ([]Change, error) { return nil, nil }); err != nil {
		t.Fatalf("no change at all: %v", err)
	}
}

func TestSwapGivesUpAtItsDeadline(t *testing.T) {
	c, cfg := newCluster(t)
	tab := openTable(t, cfg)
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := tab.Swap(ctx, increment("n"))
	var unknown *UnknownOutcomeError
	if !errors.Is(err, ErrTimeout) || errors.As(err, &unknown) {
		t.Fatalf("Swap: %v", err)
	}
	tab.Close()
	if err := tab.Swap(t.Context(), increment("n")); !errors.Is(err, ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
}

// kgo can turn a commit into an abort and return nil: see readBack.
func TestCommitThatSilentlyBecameAnAbortIsMadeAgain(t *testing.T) {
	c, cfg := newCluster(t)
	tab := openTable(t, cfg)
	ends := 0
	c.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if ends++; ends == 1 {
			req.(*kmsg.EndTxnRequest).Commit = false
		}
		return nil, nil, false
	})
	if err := tab.Swap(t.Context(), increment("n")); err != nil {
		t.Fatal(err)
	}
	if got := value(t, tab, "n"); got != "1" || ends != 2 {
		t.Fatalf("after %d ends of transactions the value is %s", ends, got)
	}
}
