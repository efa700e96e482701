package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
)

const (
	askWait     = 5 * time.Second  // for an answer about topics
	silentAfter = 10 * time.Second // without any answer the brokers count as unreachable
	faultShown  = 15 * time.Second // a fetch error is shown that long after it was seen last
	sayAgain    = 5 * time.Second  // the same complaint is logged at most that often
	refusedFor  = 5                // looks: a partition without an offset for that long needs a new client
	regexEvery  = 5                // an answer about all topics of a cluster is long: only every so many looks
	hungAfter   = 30 * time.Second // longer than any rebalance should take
)

// watch looks at the cluster beside the data: brokers that do not answer, topics that
// vanish, topics that are made again, errors of fetches, commits and the group. It
// changes nothing; it says what is wrong, and when the client must be replaced.
type watch struct {
	cfg *Config
	own *ownership
	res []*regexp.Regexp

	mu      sync.Mutex
	cl      *kgo.Client
	ids     map[string][16]byte // of topics, as this client first saw them
	missing map[string]error
	fetch   map[Partition]fault
	group   fault
	commit  fault
	again   error  // why the client must be replaced
	gone    string // the topic that was made again, where that is why
	said    time.Time
	session bool // the broker has told its session timeout, or does not
}

var errNoAnswer = errors.New("no answer")

type fault struct {
	err         error
	first, last time.Time
}

var _ kgo.HookGroupManageError = (*watch)(nil)

func newWatch(cfg *Config, own *ownership) *watch {
	w := &watch{cfg: cfg, own: own}
	if cfg.TopicsRegex {
		for _, t := range cfg.Topics {
			w.res = append(w.res, regexp.MustCompile(t)) // validated
		}
	}
	return w
}

func (w *watch) begin(cl *kgo.Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cl, w.again, w.gone = cl, nil, ""
	w.ids = make(map[string][16]byte)
	w.missing = make(map[string]error)
	w.fetch = make(map[Partition]fault)
	w.group = fault{}
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cl = nil
}

// OnGroupManageError implements kgo.HookGroupManageError: the group's session ended,
// and kgo tries again by itself.
func (w *watch) OnGroupManageError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.group = w.group.seen(err)
}

func (f fault) seen(err error) fault {
	now := time.Now()
	if f.err == nil || now.Sub(f.last) > faultShown {
		f.first = now
	}
	f.err, f.last = err, now
	return f
}

func (f fault) shown() bool { return f.err != nil && time.Since(f.last) < faultShown }

// failed notes an error that came instead of records.
func (w *watch) failed(p Partition, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetch[p] = w.fetch[p].seen(err)
}

func (w *watch) commitFailed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commit = w.commit.seen(err)
	w.complain("commit failed; trying again", err)
}

// recreated asks for a new client: records came from another topic of that name.
func (w *watch) recreated(topic string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ask(topic)
}

func (w *watch) ask(topic string) {
	if w.again == nil {
		w.again, w.gone = fmt.Errorf("%w: topic %s was deleted and made again", errAgain, topic), topic
		w.cfg.Logger.Error("a topic was deleted and made again; what was not consumed of the old one is lost", "topic", topic)
	}
}

// replace returns why the client must be replaced, nil when it need not; and the topic
// that was made again, where that is why.
func (w *watch) replace() (topic string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone, w.again
}

// complain logs, but not the same thing again and again; w.mu is held.
func (w *watch) complain(what string, err error) {
	if time.Since(w.said) >= sayAgain {
		w.said = time.Now()
		w.cfg.Logger.Warn(what, "err", err) //nolint:sloglint // its callers give constants
	}
}

func (w *watch) run(ctx context.Context) {
	every := w.cfg.WatchInterval
	if w.res != nil {
		every *= regexEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look asks for the topics' metadata. The answer also shows that a broker is there.
func (w *watch) look(ctx context.Context) {
	w.mu.Lock()
	cl := w.cl
	w.mu.Unlock()
	if cl == nil {
		return
	}
	topics := w.cfg.Topics
	if w.res != nil {
		topics = nil // all; the regular expressions choose
	}
	ask, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	w.askSession(ask, cl)
	adm := kadm.NewClient(cl)
	details, err := adm.ListTopics(ask, topics...)
	if w.res == nil && err == nil {
		w.lookAtEnds(ask, adm)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cl != cl || ctx.Err() != nil {
		return
	}
	if err != nil {
		w.complain("no broker answers; trying again", err)
		return
	}
	clear(w.missing)
	for name, d := range details {
		if !w.reads(name) {
			continue
		}
		known, ok := w.ids[name]
		switch {
		case d.Err != nil:
			// While it is away nothing can be done; when it is back its id differs.
			w.missing[name] = d.Err
			w.complain("a topic cannot be read", fmt.Errorf("%s: %w", name, d.Err))
		case !ok:
			w.ids[name] = d.ID
		case known != d.ID:
			w.ask(name)
			w.own.wake()
		}
	}
	if p, ok := w.own.refused(refusedFor * w.cfg.WatchInterval); ok && w.again == nil && w.fetch[p].shown() {
		w.again = fmt.Errorf("%w: %s/%d has no offset: %w", errAgain, p.Topic, p.Partition, w.fetch[p].err)
		w.own.wake()
	}
}

// lookAtEnds asks how far the topics go, for Backlog. It is asked for and not taken from
// fetches: a partition that is paused fetches nothing, and then it matters most.
func (w *watch) lookAtEnds(ctx context.Context, adm *kadm.Client) {
	ends, err := adm.ListCommittedOffsets(ctx, w.cfg.Topics...)
	if err != nil {
		return // whoever looks at the metrics sees the rest; Ready tells of the broker
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			w.own.reaches(Partition{o.Topic, o.Partition}, o.Offset)
		}
	})
}

// askSession asks for the session timeout, which is the brokers' own with KIP-848: the
// group's where it is set, else the cluster's. Only run's goroutine calls it.
func (w *watch) askSession(ctx context.Context, cl *kgo.Client) {
	if w.cfg.GroupProtocol != ProtocolConsumer || w.session {
		return
	}
	for _, ask := range []struct {
		of         kmsg.ConfigResourceType
		name, from string
	}{
		{kmsg.ConfigResourceTypeGroupConfig, "consumer.session.timeout.ms", w.cfg.Group},
		{kmsg.ConfigResourceTypeBroker, "group.consumer.session.timeout.ms", ""},
	} {
		req := kmsg.NewPtrDescribeConfigsRequest()
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = ask.of, ask.from, []string{ask.name}
		req.Resources = append(req.Resources, res)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return // asked again at the next look
		}
		for _, r := range resp.Resources {
			for _, c := range r.Configs {
				if c.Name != ask.name || c.Value == nil {
					continue
				}
				if ms, err := strconv.Atoi(*c.Value); err == nil && ms > 0 {
					w.session = true
					w.own.lease.setSession(time.Duration(ms) * time.Millisecond)
					return
				}
			}
		}
	}
	w.session = true
	w.cfg.Logger.Warn("no broker tells its session timeout; taking the configured one for it", "session_timeout", w.cfg.SessionTimeout)
}

func (w *watch) reads(topic string) bool {
	for _, re := range w.res {
		if re.MatchString(topic) {
			return true
		}
	}
	return w.res == nil
}

// wrong lists what is in the way of records.
func (w *watch) wrong() (errs []error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if silent := w.own.lease.silence(); silent > silentAfter || w.own.lease.heard.Load() == 0 {
		errs = append(errs, fmt.Errorf("consume: no broker has answered for %s", silent.Round(time.Second)))
	}
	for topic, err := range w.missing {
		errs = append(errs, fmt.Errorf("consume: topic %s: %w", topic, kafka.NameRight(err, "Describe", "Topic", topic)))
	}
	if w.again != nil {
		errs = append(errs, fmt.Errorf("consume: %w", w.again))
	}
	if w.group.shown() && !errors.Is(w.group.err, kerr.RebalanceInProgress) && !w.own.lease.fresh() {
		errs = append(errs, fmt.Errorf("consume: the group's session failed: %w", kafka.NameRight(w.group.err, "Read", "Group", w.cfg.Group)))
	}
	for p, f := range w.fetch {
		if f.shown() {
			errs = append(errs, fmt.Errorf("consume: %s/%d: %w", p.Topic, p.Partition, kafka.NameRight(f.err, "Read", "Topic", p.Topic)))
		}
	}
	if since := sinceMilli(&w.own.commits.failing); since > silentAfter {
		errs = append(errs, fmt.Errorf("consume: commits have failed for %s: %w", since.Round(time.Second),
			kafka.NameRight(cmp.Or(w.commit.err, errNoAnswer), "Read", "Group", w.cfg.Group)))
	}
	if since := sinceMilli(&w.own.commits.begun); since > hungAfter {
		errs = append(errs, fmt.Errorf("consume: a commit, for %s: %w", since.Round(time.Second), errNoAnswer))
	}
	return errs
}
