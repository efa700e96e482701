package lag

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/internal/health"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
)

// Reader looks. Make it with Open; it is not safe for concurrent use.
type Reader struct {
	kafka   *kafka.Reader
	letters *dlq.Store
	names   schemas.Names
	sources []string
}

// parallel bounds how many partitions are read together.
const parallel = 8

// Open makes a Reader with clients of its own. sources are the topics that the
// configuration lets the router read; those that its group has committed are looked at
// too. retryFor is how long a broker may give no answer. Close it.
func Open(cfg kafka.Config, sources []string, retryFor time.Duration) (*Reader, error) {
	cfg = cfg.WithDefaults()
	r, err := kafka.NewReader(cfg, kafka.WithRetryFor(retryFor))
	if err != nil {
		return nil, err
	}
	letters, err := dlq.Open(cfg)
	if err != nil {
		r.Close()
		return nil, err
	}
	return &Reader{kafka: r, letters: letters, names: cfg.Names, sources: sources}, nil
}

// Close closes the clients.
func (r *Reader) Close() {
	r.kafka.Close()
	r.letters.Close()
}

// Look makes a report. countFor bounds the counting of dead letters, which reads all
// of them: what takes longer is left out.
func (r *Reader) Look(ctx context.Context, now time.Time, countFor time.Duration) (*Report, error) {
	rep := &Report{At: now.UTC()}
	for _, g := range []string{"router", "dispatcher", "releaser"} {
		if err := r.group(ctx, rep, g); err != nil {
			return nil, err
		}
	}
	if err := r.hold(ctx, rep); err != nil {
		return nil, err
	}
	if err := r.count(ctx, rep, countFor); err != nil {
		rep.NotCounted = schemas.CleanText(err.Error(), schemas.MaxErrorLen)
	}
	rep.Judge()
	return rep, nil
}

// group looks at all that one group reads. Commits are asked for before the ends:
// what moves on in between is counted, and not missed.
func (r *Reader) group(ctx context.Context, rep *Report, role string) error {
	group := r.names.Group(role)
	commits, err := r.kafka.Commits(ctx, group)
	if err != nil {
		return err
	}
	topics, err := r.topicsOf(ctx, role, commits)
	if err != nil || len(topics) == 0 {
		return err
	}
	members, err := r.kafka.Group(ctx, group)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		t, err := r.topic(ctx, topic, &members, commits[topic], rep.At)
		if err != nil {
			return err
		}
		t.Group = group
		t.judge()
		rep.Topics = append(rep.Topics, *t)
	}
	return nil
}

// topicsOf are the topics that a group reads, tiers by their delay.
func (r *Reader) topicsOf(ctx context.Context, role string, commits map[string]map[int32]kafka.Commit) ([]string, error) {
	switch role {
	case "dispatcher":
		return []string{r.names.Deliveries()}, nil
	case "releaser":
		tiers, err := r.kafka.Topics(ctx, r.names.RetryPrefix())
		slices.SortStableFunc(tiers, func(a, b string) int {
			x, _ := retrytopics.ParseTier(r.names, a)
			y, _ := retrytopics.ParseTier(r.names, b)
			return cmp.Compare(x, y)
		})
		return tiers, err
	}
	topics := slices.Clone(r.sources)
	for topic := range commits {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics), nil
}

func (r *Reader) topic(ctx context.Context, topic string, members *kafka.Group, commits map[int32]kafka.Commit, now time.Time) (*Topic, error) {
	t, err := r.bounds(ctx, topic)
	if err != nil {
		return nil, err
	}
	t.Members = members.Members
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range t.Partitions {
		g.Go(func() error { return r.place(ctx, t, &t.Partitions[i], members, commits, now) })
	}
	return t, g.Wait()
}

// bounds is a topic with where its partitions start and end.
func (r *Reader) bounds(ctx context.Context, topic string) (*Topic, error) {
	id, err := r.kafka.TopicID(ctx, topic)
	if err != nil {
		return nil, err
	}
	starts, err := r.kafka.Starts(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := r.kafka.Ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	t := &Topic{Topic: topic, id: id, Partitions: make([]Partition, min(len(starts), len(ends)))}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		p.Partition, p.Start, p.End = int32(i), starts[i], ends[i] //nolint:gosec // a partition
		p.tier = strings.HasPrefix(topic, r.names.RetryPrefix())
	}
	return t, nil
}

// place finds how far a group is in a partition.
func (r *Reader) place(ctx context.Context, t *Topic, p *Partition, members *kafka.Group, commits map[int32]kafka.Commit, now time.Time) error {
	owner := members.Owner(t.Topic, p.Partition)
	if owner != nil {
		p.Owner = owner.ClientID + " at " + strings.TrimPrefix(owner.Host, "/")
	}
	var done offsets.Set
	if c, ok := commits[p.Partition]; ok {
		p.Commit = &c.Offset
		done = consume.Completed(c.Metadata, t.id, c.Offset)
	}
	if err := r.partition(ctx, t.Topic, p, done, now); err != nil {
		return err
	}
	p.judge(members.Members, owner != nil, now)
	return nil
}

// Deliveries looks at one partition of deliveries, and at who owns it; nil: nobody does.
func (r *Reader) Deliveries(ctx context.Context, partition int32, now time.Time) (*Partition, *kafka.GroupMember, error) {
	group, topic := r.names.Group("dispatcher"), r.names.Deliveries()
	commits, err := r.kafka.Commits(ctx, group)
	if err != nil {
		return nil, nil, err
	}
	members, err := r.kafka.Group(ctx, group)
	if err != nil {
		return nil, nil, err
	}
	t, err := r.bounds(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	if int(partition) >= len(t.Partitions) {
		return nil, nil, fmt.Errorf("%s has %d partitions, and %s has a partition %d", topic, len(t.Partitions), r.names.Health(), partition)
	}
	p := &t.Partitions[partition]
	if err := r.place(ctx, t, p, &members, commits[topic], now); err != nil {
		return nil, nil, err
	}
	return p, members.Owner(topic, partition), nil
}

// hold sums up what the owners wrote of endpoints that have something on hold.
func (r *Reader) hold(ctx context.Context, rep *Report) error {
	h := &rep.Hold
	h.Topic, h.Endpoints = r.names.Hold(), []HeldEndpoint{}
	var trouble health.Topic
	if err := trouble.Read(ctx, r.kafka, r.names.Health()); err != nil {
		return err
	}
	for id, e := range trouble.Endpoints() {
		if e.Held == 0 {
			continue
		}
		asOf := time.UnixMilli(e.Written).UTC()
		h.Records += int64(e.Held)
		h.Endpoints = append(h.Endpoints, HeldEndpoint{id, e.Held, asOf})
		earlier(&h.AsOf, asOf)
		if e.HeldSince > 0 {
			earlier(&h.Since, time.UnixMilli(e.HeldSince).UTC())
		}
	}
	slices.SortFunc(h.Endpoints, func(a, b HeldEndpoint) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return nil
}

func earlier(at **time.Time, t time.Time) {
	if *at == nil || t.Before(**at) {
		*at = &t
	}
}

// count counts dead letters, if that is done in time.
func (r *Reader) count(ctx context.Context, rep *Report, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it takes longer than %s", within))
	defer cancel()
	ends, err := r.kafka.Ends(ctx, r.names.DLQ())
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	all := make([]int32, len(ends))
	for i := range all {
		all[i] = int32(i) //nolint:gosec // a partition
	}
	f, err := r.letters.Figures(ctx, all)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	l := &Letters{Topic: r.names.DLQ(), ByReason: f.Open}
	for _, n := range f.Open {
		l.Open += n
	}
	if !f.Oldest.IsZero() {
		oldest := f.Oldest.UTC()
		l.Oldest = &oldest
		if f.Retention > 0 {
			expires := oldest.Add(f.Retention)
			l.Expires = &expires
		}
	}
	rep.Letters = l
	return nil
}
