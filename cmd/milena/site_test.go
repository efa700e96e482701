//go:build kafka

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
)

// site is an installation on a real broker that is used by command lines alone, each
// with the environment of whoever runs it.
type site struct {
	t        *testing.T
	receiver *testkit.Receiver
	common   []string // of everyone: what is no question of the connection
	admin    []string // of a super user on the plaintext listener
}

func init() { wrap = func(m *testing.M) goleak.TestingM { return realkafka.WithShared(m) } }

// newSite makes the topics. more is for the admin's environment.
func newSite(t *testing.T, brokers []string, more ...string) *site {
	t.Helper()
	s := bareSite(t, brokers)
	s.admin = append(s.admin, more...)
	s.do(s.admin, "topics", "apply")
	return s
}

// bareSite has no topics yet.
func bareSite(t *testing.T, brokers []string) *site {
	t.Helper()
	inDir(t)
	key, err := registry.GenerateKey("k")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, receiver: testkit.NewReceiver(t)}
	s.common = []string{
		"MILENA_KEYRING=" + key, "MILENA_EGRESS_ALLOW_CIDRS=127.0.0.0/8", "MILENA_EGRESS_ALLOW_HTTP=true",
		"MILENA_TOPICS_PARTITIONS=2", "MILENA_TOPICS_RETRY_PARTITIONS=1", "MILENA_KAFKA_SESSION_TIMEOUT=6s",
	}
	s.admin = s.at(brokers)
	return s
}

// at is the environment of someone who connects to these brokers.
func (s *site) at(brokers []string, more ...string) []string {
	return append(append([]string{"MILENA_KAFKA_BROKERS=" + strings.Join(brokers, ",")}, more...), s.common...)
}

// do runs a command that must succeed and returns what it printed.
func (s *site) do(env []string, args ...string) string {
	s.t.Helper()
	res := run(s.t, "", env, append(args, "--timeout", "1m")...)
	if res.code != exitDone {
		s.t.Fatalf("milena %s: exit %d\n%s%s", strings.Join(args, " "), res.code, res.out, res.err)
	}
	return res.out
}

// endpoint registers an endpoint at the receiver.
func (s *site) endpoint(env []string, id string, more ...string) {
	s.t.Helper()
	s.do(env, append([]string{"endpoint", "create", "--id", id, "--url", s.receiver.URL("/" + id)}, more...)...)
}

// received waits until the receiver has had n requests of an endpoint.
func (s *site) received(id string, n int) {
	s.t.Helper()
	testkit.Eventually(s.t, time.Minute, func() string {
		if have := len(s.receiver.Log.All("/" + id)); have < n {
			return fmt.Sprintf("%d of %d requests of %s arrived", have, n, id)
		}
		return ""
	})
}

// serving is one `milena serve`.
type serving struct {
	site *site
	addr string
	stop context.CancelFunc
	done chan struct{}
	code int

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

func (v *serving) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.log.Write(b)
}

func (v *serving) logged() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.log.String()
}

// serve starts a process; it ends with the test, or by end.
func (s *site) serve(env []string, args ...string) *serving {
	s.t.Helper()
	v := &serving{site: s, addr: testkit.ReserveAddr(s.t), done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	v.stop = stop
	p := &program{in: strings.NewReader(""), out: io.Discard, err: v, environ: env}
	go func() {
		defer close(v.done)
		v.code = p.run(ctx, append([]string{"serve", "--http-addr", v.addr}, args...))
	}()
	s.t.Cleanup(func() { stop(); <-v.done })
	return v
}

// end stops the process as SIGTERM does.
func (v *serving) end() {
	v.site.t.Helper()
	v.stop()
	<-v.done
	if v.code != exitDone {
		v.site.t.Errorf("serve: exit %d\n%s", v.code, v.logged())
	}
}

// refused waits until the process has refused to start and returns what it said;
// false when it got ready.
func (v *serving) refused() (string, bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-v.done:
			return v.logged(), v.code == exitUsage
		case <-tick.C:
			if v.readiness() == "ready\n" {
				return "", false
			}
		}
	}
}

// readiness is the text of /readyz.
func (v *serving) readiness() string {
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr, Timeout: 5 * time.Second}).Get("http://" + v.addr + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// says waits until /readyz has all of the parts, and returns it.
func (v *serving) says(parts ...string) string {
	v.site.t.Helper()
	var text string
	testkit.Eventually(v.site.t, time.Minute, func() string {
		select {
		case <-v.done:
			return "serve ended: " + v.logged()
		default:
		}
		text = v.readiness()
		for _, p := range parts {
			if !strings.Contains(text, p) {
				return fmt.Sprintf("readiness says %q, not %q", text, p)
			}
		}
		return ""
	})
	return text
}
