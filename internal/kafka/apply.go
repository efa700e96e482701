package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Outcome is what Apply did about a difference.
type Outcome string

const (
	Done      Outcome = "done"
	ByHand    Outcome = "by hand"   // Apply does not do such things; its command does
	Forbidden Outcome = "forbidden" // the cluster does not let us; someone else must run the command
	Failed    Outcome = "failed"    // Err says why
)

// Result is one difference and what became of it.
type Result struct {
	Difference
	Outcome Outcome `json:"outcome"`
	Err     string  `json:"error,omitempty"`
}

// Applied is what Apply did, in the plan's order.
type Applied []Result

// Complete reports whether everything was mended.
func (a Applied) Complete() bool {
	for _, r := range a {
		if r.Outcome != Done {
			return false
		}
	}
	return true
}

// String is for people; what is left comes with its command.
func (a Applied) String() string {
	if len(a) == 0 {
		return "all topics are as they shall be\n"
	}
	var b strings.Builder
	for _, r := range a {
		if r.Outcome == Done && r.Kind == KindMissing {
			fmt.Fprintf(&b, "made: %s (%s)\n", r.Topic, r.Why)
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", r.Outcome, r.Difference)
		if r.Err != "" {
			fmt.Fprintf(&b, "    %s\n", r.Err)
		}
		if r.Outcome != Done && r.Command != "" {
			fmt.Fprintf(&b, "    %s\n", r.Command)
		}
	}
	return b.String()
}

// Apply makes what is missing and mends settings. It lowers no retention, deletes
// nothing and changes no number of partitions. A refusal of the cluster is a
// Result; the error is that of a cluster that cannot be reached. It waits until
// what it did can be seen, so that a check that follows does not find the old state.
func (p Plan) Apply(ctx context.Context, adm *kadm.Client) (Applied, error) {
	var out Applied
	var made []string
	var changed []Difference
	for _, d := range p.Differences {
		r := Result{Difference: d, Outcome: ByHand}
		var err error
		switch {
		case d.ByHand:
			out = append(out, r)
			continue
		case d.Kind == KindMissing:
			if err = create(ctx, adm, d.spec); err == nil {
				made = append(made, d.Topic)
			}
		case d.Kind == KindSetting:
			if err = alter(ctx, adm, d); err == nil {
				changed = append(changed, d)
			}
		}
		if r.Outcome, err = judge(err); err != nil {
			if ctx.Err() != nil || r.Outcome == "" {
				return out, fmt.Errorf("%s: %w", d.Topic, err)
			}
			r.Err = err.Error()
			if !errors.Is(err, kerr.PolicyViolation) && r.Outcome == Forbidden {
				r.Err = applyRight(d).String() + ": " + r.Err
			}
		}
		out = append(out, r)
	}
	return out, waitFor(ctx, adm, made, changed)
}

// judge tells refusals from a cluster that did not answer (the empty outcome).
func judge(err error) (Outcome, error) {
	var ke *kerr.Error
	switch {
	case err == nil:
		return Done, nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.PolicyViolation):
		return Forbidden, err
	case errors.As(err, &ke):
		return Failed, err
	default:
		return "", err
	}
}

// applyRight is the right that mending d needs.
func applyRight(d Difference) Difference {
	if d.Kind == KindMissing {
		return aclDifference(d.Topic, right{"Create", "Topic", d.Topic})
	}
	return aclDifference(d.Topic, right{"AlterConfigs", "Topic", d.Topic})
}

func create(ctx context.Context, adm *kadm.Client, s TopicSpec) error {
	err := createWith(ctx, adm, s, s.create(true))
	if errors.Is(err, kerr.InvalidConfig) {
		// A broker that is no Apache Kafka may lack an optional key.
		err = createWith(ctx, adm, s, s.create(false))
	}
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil // another process was faster; the next plan compares it
	}
	return err
}

func createWith(ctx context.Context, adm *kadm.Client, s TopicSpec, configs map[string]*string) error {
	r, err := adm.CreateTopic(ctx, s.Partitions, s.Replication, configs, s.Name)
	if err != nil && r.ErrMessage != "" {
		err = fmt.Errorf("%w: %s", err, r.ErrMessage)
	}
	return err
}

func alter(ctx context.Context, adm *kadm.Client, d Difference) error {
	rs, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: d.Key, Value: &d.Want}}, d.Topic)
	var denied *kadm.AuthError
	if errors.As(err, &denied) {
		return denied.Err
	}
	if err != nil {
		return err
	}
	r, err := rs.On(d.Topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	if err != nil && r.ErrMessage != "" {
		err = fmt.Errorf("%w: %s", err, r.ErrMessage)
	}
	return err
}

// waitFor returns when all topics that were made have leaders and all settings that
// were changed show: brokers learn of both a little later, and the next check must
// not find the old state.
func waitFor(ctx context.Context, adm *kadm.Client, made []string, changed []Difference) error {
	if len(made)+len(changed) == 0 {
		return nil
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := arrived(ctx, adm, made, changed)
		if ok && err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("changes were made, but brokers do not show them yet: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

func arrived(ctx context.Context, adm *kadm.Client, made []string, changed []Difference) (bool, error) {
	if len(made) > 0 {
		details, err := adm.ListTopics(ctx, made...)
		if err != nil || !usable(details, made) {
			return false, err
		}
	}
	state := map[string]found{}
	var names []string
	for _, d := range changed {
		if _, ok := state[d.Topic]; !ok {
			state[d.Topic] = found{configs: map[string]string{}}
			names = append(names, d.Topic)
		}
	}
	if err := describe(ctx, adm, names, state); err != nil {
		return false, err
	}
	for _, d := range changed {
		want := Setting{Key: d.Key, Value: d.Want, Rule: d.Rule}
		if f := state[d.Topic]; len(f.denied) == 0 && !want.met(f.configs[d.Key]) {
			return false, nil
		}
	}
	return true, nil
}

func usable(details kadm.TopicDetails, names []string) bool {
	for _, n := range names {
		d, ok := details[n]
		if !ok || d.Err != nil || len(d.Partitions) == 0 {
			return false
		}
		for _, p := range d.Partitions {
			if p.Err != nil || p.Leader < 0 {
				return false
			}
		}
	}
	return true
}
