package flowtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/logging"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// written is all that a process has logged, at level debug. Safe for concurrent use.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// logEverything lets the processes of f log at level debug, as production does, with
// what the standard library and the Kafka client say.
func (f *flow) logEverything() *written {
	f.t.Helper()
	w := &written{}
	f.cfg.Log.Level = "debug"
	f.cfg.Log.Successes = 1
	f.logs = slog.New(logging.Quiet(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})))
	logging.Standard(f.logs)
	f.t.Cleanup(func() { logging.Standard(slog.New(slog.DiscardHandler)) })
	return w
}

// secret is a text that must stand nowhere but, sealed, in the registry.
type secret struct{ what, text string }

// secretsOf are the texts by which the secrets of an endpoint would be recognised.
func secretsOf(ep *schemas.Endpoint, plain schemas.Auth, signing string) []secret {
	all := []secret{{"signing secret of " + ep.ID, strings.TrimPrefix(signing, "whsec_")}}
	if plain.Bearer != "" {
		all = append(all, secret{"token of " + ep.ID, plain.Bearer})
	}
	if b := plain.Basic; b != nil {
		all = append(all, secret{"password of " + ep.ID, b.Password},
			secret{"credentials of " + ep.ID, base64.StdEncoding.EncodeToString([]byte(b.User + ":" + b.Password))})
	}
	return all
}

// credentials gives an endpoint something to keep secret, of the kinds in turn, and
// returns it as plain text. Its URL's query holds a key too, as those of many chat
// services do.
func credentials(ep *schemas.Endpoint, i int) (plain schemas.Auth) {
	if i%2 == 0 {
		plain.Bearer = "token-" + random() + random()
	} else {
		plain.Basic = &schemas.BasicAuth{User: "milena", Password: "password-" + random() + random()}
	}
	sealed := plain
	if plain.Basic != nil {
		b := *plain.Basic
		sealed.Basic = &b
	}
	ep.Auth = &sealed
	if ep.URL != "" && !strings.Contains(ep.URL, "?") {
		ep.URL += "?key=" + queryKey
	}
	return plain
}

const queryKey = "query-key-4242424242"

// searchSecrets looks through everything that a process wrote, and what it shows of
// itself.
func (f *flow) searchSecrets(logs *written, a *app.App, secrets []secret) {
	f.t.Helper()
	places := map[string]string{"the log": logs.String()}
	for _, path := range []string{"/metrics", "/readyz"} {
		places[path] = shown(f.t, a.Handler(), path)
	}
	for _, path := range []string{"goroutine?debug=2", "heap?debug=1", "heap", "allocs?debug=1", "threadcreate?debug=1", "block?debug=1", "mutex?debug=1", "cmdline", ""} {
		places["pprof "+path] = shown(f.t, a.DebugHandler(), "/debug/pprof/"+path)
	}
	n := f.names()
	topics := []string{n.Deliveries(), n.Hold(), n.DLQ(), n.Attempts(), n.Health(), n.Notices(), n.Audit(), n.Runs()}
	for _, tier := range f.cfg.Retry.Tiers {
		topics = append(topics, n.Retry(tier))
	}
	for _, topic := range topics {
		places[topic] = f.everything(topic)
	}
	all := append(secrets, secret{"key ring", strings.SplitN(f.cfg.Keyring, ":", 2)[1]})
	bytesSearched := 0
	for place, text := range places {
		bytesSearched += len(text)
		for _, s := range append(all, secret{"key in a URL's query", queryKey}) {
			if at := strings.Index(text, s.text); at >= 0 {
				f.t.Errorf("the %s stands in %s: …%q…", s.what, place, text[max(0, at-200):min(len(text), at+len(s.text)+20)])
			}
		}
	}
	registered := f.everything(n.Endpoints())
	for _, s := range all {
		if strings.Contains(registered, s.text) {
			f.t.Errorf("the %s stands in the registry, and not sealed", s.what)
		}
	}
	f.t.Logf("%d secrets, none in %d bytes of %d places (of these the log: %d)", len(all)+1, bytesSearched, len(places), len(places["the log"]))
}

func shown(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Body.String()
}

// everything is a topic as one text.
func (f *flow) everything(topic string) string {
	var b strings.Builder
	for _, rec := range f.read(topic) {
		fmt.Fprintf(&b, "%s\n%s\n", rec.Key, rec.Value)
		for _, h := range rec.Headers {
			fmt.Fprintf(&b, "%s: %s\n", h.Key, h.Value)
		}
	}
	return b.String()
}

// echoes are receivers that say back what they were sent, where a debugging page, a
// proxy or a broken server would.
func (h *hostile) echoes() []receiverCase {
	said := func(c *caller) string { // the head of the request, as it came
		if !c.request() {
			return ""
		}
		all := c.log.list()
		var b strings.Builder
		_ = all[len(all)-1].header.Write(&b)
		return b.String()
	}
	page := func(status, padding string) func(*caller) {
		return func(c *caller) {
			if text := said(c); text != "" {
				text = padding + text
				_ = c.Say(fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(text), text))
			}
		}
	}
	inHeaders := func(c *caller) {
		for line := range strings.Lines(said(c)) {
			if _, value, ok := strings.Cut(strings.TrimSpace(line), "Authorization: "); ok {
				_ = c.Say("HTTP/1.1 401 No\r\nWWW-Authenticate: " + value + "\r\nX-Echo: you said " + value + "\r\nContent-Length: 0\r\n\r\n")
			}
		}
	}
	return []receiverCase{
		{name: "echo-in-the-body", script: page("500 No", ""), status: 500, says: "(hidden)"},
		{name: "echo-over-the-cut", script: page("500 No", strings.Repeat("x", 2<<10-20)), status: 500, says: "xxx"},
		{name: "echo-in-the-headers", script: inHeaders, status: 401, says: "(hidden)"},
		{name: "echo-in-place-of-http", script: func(c *caller) { _ = c.Say(strings.ReplaceAll(said(c), "\r\n", " ") + "\r\n") },
			class: schemas.ClassProtocol},
		{name: "echo-as-a-header-line", script: func(c *caller) { _ = c.Say("HTTP/1.1 200 OK\r\n" + strings.ReplaceAll(said(c), ":", "") + "\r\n\r\n") },
			class: schemas.ClassProtocol},
		{name: "echo-behind-the-answer", script: func(c *caller) { _ = c.Say(ok200 + said(c)) }, outcome: schemas.OutcomeDelivered, status: 200},
	}
}

// How to log in to Kafka is told to Kafka only, also when it refuses.
func TestARefusedLoginDoesNotWriteThePassword(t *testing.T) {
	t.Parallel()
	const password = "sasl-password-4242"
	fake := testkit.NewFake(t, testkit.WithKfake(kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "admin", "another")))
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256"} {
		key, err := registry.GenerateKey("test")
		must(t, err)
		loaded, err := config.Load(config.Options{Environ: []string{"MILENA_KAFKA_BROKERS=" + fake.Brokers()[0], "MILENA_KEYRING=" + key,
			"MILENA_KAFKA_SASL_MECHANISM=" + mechanism, "MILENA_KAFKA_SASL_USER=milena", "MILENA_KAFKA_SASL_PASSWORD=" + password,
			"MILENA_HTTP_ADDR="}})
		must(t, err)
		w := &written{}
		a, err := app.New(loaded.Config, app.Options{Logger: slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		var ended error
		testkit.Eventually(t, 30*time.Second, func() string {
			select {
			case ended = <-done:
				done <- ended
				return ""
			default:
			}
			if strings.Count(w.String(), "issuing SASLAuthenticate") >= 4 { // it was refused, and tries again
				return ""
			}
			return "no login was refused: " + w.String()
		})
		cancel()
		ended = <-done
		if text := fmt.Sprint(w.String(), ended); strings.Contains(text, password) || strings.Contains(text, strings.SplitN(key, ":", 2)[1]) {
			t.Errorf("%s: a secret stands in %s", mechanism, text)
		}
	}
}
