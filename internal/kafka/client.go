package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kslog"

	"github.com/milena-project/milena/schemas"
)

// DefaultDialTimeout is Config.DialTimeout's default.
const DefaultDialTimeout = 10 * time.Second

// Dialer opens a TCP connection to a broker; TLS is put on top of it.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Config says how to reach a Kafka cluster. All clients of a process are made
// from one. Only Brokers is required.
type Config struct {
	Brokers     []string      // host:port; the port may be left out (9092)
	ClientID    string        // default: the prefix of Names without its last dot
	Names       schemas.Names // default prefix: schemas.DefaultPrefix
	TLS         TLSConfig
	SASL        SASLConfig
	DialTimeout time.Duration // of TCP and TLS together; default 10s
	Dialer      Dialer        // default: net.Dialer; the embedded broker and tests have their own
	Logger      *slog.Logger  // default: slog.Default()
	Hooks       []kgo.Hook    // metrics; installed in every client
}

// Error is a mistake in the configuration of connections. Its text names the key,
// its value (never a secret's) and what would be right.
type Error struct {
	Key    string // kafka.tls.ca_file
	Value  string // as given; empty for secrets
	Why    string // what is wrong with it
	Remedy string // what would be right
	Err    error  // what it came from; may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Key)
	if e.Value != "" {
		fmt.Fprintf(&b, " = %q", e.Value)
	}
	b.WriteString(": " + e.Why)
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// WithDefaults fills in what was left out.
func (c Config) WithDefaults() Config {
	if c.Names.Prefix == "" {
		c.Names.Prefix = schemas.DefaultPrefix
	}
	if c.ClientID == "" {
		c.ClientID = strings.TrimRight(c.Names.Prefix, ".-_")
	}
	if c.DialTimeout <= 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Opts are the options that every client has: seed brokers, client id, logging,
// TLS and SASL. Files are read once here so that a wrong path is an error now (an
// *Error, or several joined) and not at the first connection.
func (c Config) Opts() ([]kgo.Opt, error) {
	c = c.WithDefaults()
	brokers, err := parseBrokers(c.Brokers)
	mechanism, saslErr := c.SASL.mechanism()
	dial, tlsErr := c.dialer()
	if err := errors.Join(err, tlsErr, saslErr); err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("milena", "1"),
		kgo.WithLogger(quieter{kslog.New(c.Logger)}),
		kgo.Dialer(dial),
		// A topic that is made while we run, or a partition that moved without
		// telling us, is seen within a minute even if nothing fails.
		kgo.MetadataMaxAge(time.Minute),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.RetryBackoffFn(backoff),
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	if len(c.Hooks) > 0 {
		opts = append(opts, kgo.WithHooks(c.Hooks...))
	}
	return opts, nil
}

// quieter takes what kgo calls info for debug: it is a line for each step of each
// rebalance and of each metadata update, and buries what Milena itself has to say.
type quieter struct{ kgo.Logger }

// Level implements kgo.Logger.
func (q quieter) Level() kgo.LogLevel {
	if level := q.Logger.Level(); level != kgo.LogLevelInfo {
		return level
	}
	return kgo.LogLevelWarn
}

// Log implements kgo.Logger.
func (q quieter) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if level == kgo.LogLevelInfo {
		level = kgo.LogLevelDebug
	}
	q.Logger.Log(level, msg, keyvals...)
}

// backoff is the pause before a request is tried again: 100 ms, doubled up to a
// second, ± 20 %. kgo's own goes up to five seconds, and a broker that is back
// would be met so much later.
func backoff(fails int) time.Duration {
	d := min(100*time.Millisecond<<min(max(fails-1, 0), 4), time.Second)
	return d*4/5 + rand.N(d*2/5)
}

// NewClient makes a client with Opts and more of the caller's, which win. Nothing
// is dialled yet.
func (c Config) NewClient(more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := c.Opts()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return cl, nil
}

// parseBrokers checks the seeds before kgo does, so that the message names our key.
func parseBrokers(in []string) ([]string, error) {
	const key = "kafka.brokers"
	const remedy = "give host:port, several separated by commas"
	if len(in) == 0 {
		return nil, &Error{Key: key, Why: "is not set", Remedy: remedy}
	}
	var out []string
	for _, b := range in {
		b = strings.TrimSpace(b)
		if _, rest, ok := strings.Cut(b, "://"); ok {
			return nil, &Error{Key: key, Value: b, Why: "is a URL",
				Remedy: fmt.Sprintf("give %s, and kafka.tls.enabled for TLS", rest)}
		}
		host, port, err := net.SplitHostPort(b)
		if err != nil && (strings.Count(b, ":") != 1 || strings.HasPrefix(b, "[")) { // no port
			host, port = strings.TrimSuffix(strings.TrimPrefix(b, "["), "]"), "9092"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || !isHost(host) {
			return nil, &Error{Key: key, Value: b, Why: "is no address", Remedy: remedy}
		}
		out = append(out, net.JoinHostPort(host, port))
	}
	return out, nil
}

// isHost reports whether s is an IP address or looks like a name.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}
