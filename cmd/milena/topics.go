package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/kafka"
)

func (p *program) topicsCommand() *cobra.Command {
	return group("topics", "Compare Milena's topics with what they shall be, and mend them",
		"  milena topics plan --brokers kafka-1:9092\n  milena topics apply --brokers kafka-1:9092", p.topicsPlanCommand(), p.topicsApplyCommand())
}

// topicsFlags are those of plan and apply.
type topicsFlags struct {
	json    bool
	timeout time.Duration
}

func (p *program) topicsVerb(cmd *cobra.Command, run func(cmd *cobra.Command, s *session, f *topicsFlags) error) *cobra.Command {
	f := &topicsFlags{}
	jsonFlag(cmd, &f.json)
	timeoutFlag(cmd, &f.timeout)
	settings(cmd)
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		s, err := p.connect(cmd, f.timeout)
		if err != nil {
			return err
		}
		s.topics = true
		return run(cmd, s, f)
	})
}

func (p *program) topicsPlanCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "plan", Args: noArgs,
		Short:   "Show what differs, why it matters and the command that mends it; changes nothing",
		Long:    "Show what differs, why it matters and the command that mends it. Changes nothing.\nExit code 0: nothing to do; 3: there are differences.",
		Example: "  milena topics plan\n  milena topics plan --topics-partitions 48 --json"}
	return p.topicsVerb(cmd, func(cmd *cobra.Command, s *session, f *topicsFlags) error {
		var plan kafka.Plan
		err := s.within(cmd.Context(), func(ctx context.Context) (err error) {
			plan, err = s.plan(ctx)
			return err
		})
		if err != nil {
			return err
		}
		if err := p.showPlan(plan, f.json); err != nil {
			return err
		}
		if !plan.Empty() {
			return &exit{code: exitDifferences}
		}
		return nil
	})
}

func (s *session) plan(ctx context.Context) (kafka.Plan, error) {
	adm, err := s.kafka.NewAdmin()
	if err != nil {
		return kafka.Plan{}, err
	}
	defer adm.Close()
	return kafka.MakePlan(ctx, adm, s.TopicsConfig())
}

func (p *program) showPlan(plan kafka.Plan, asJSON bool) error {
	if asJSON {
		return p.writeJSON(plan)
	}
	p.printf("%s", plan.String())
	if !plan.Empty() {
		p.notef("milena topics apply makes (+) and mends (~); what has ! or ? is left to you")
	}
	return nil
}

func (p *program) topicsApplyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "apply", Args: noArgs,
		Short:   "Create and mend topics; never lowers a retention, deletes, or changes a count of partitions",
		Long:    "Create and mend topics. Never lowers a retention, deletes, or changes a count of partitions.\nExit code 0: all is as it shall be; 3: differences remain that must be mended by hand.",
		Example: "  milena topics apply --brokers kafka-1:9092 --topics-replication 3 --topics-min-insync-replicas 2"}
	return p.topicsVerb(cmd, func(cmd *cobra.Command, s *session, f *topicsFlags) error {
		var done kafka.Applied
		err := s.within(cmd.Context(), func(ctx context.Context) (err error) {
			done, err = s.apply(ctx)
			return err
		})
		if err != nil {
			return err
		}
		if f.json {
			err = p.writeJSON(append(kafka.Applied{}, done...)) // [] where there was nothing to do
		} else {
			p.printf("%s", done.String())
		}
		if err == nil && !done.Complete() {
			return &exit{code: exitDifferences}
		}
		return err
	})
}

func (s *session) apply(ctx context.Context) (kafka.Applied, error) {
	adm, err := s.kafka.NewAdmin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	plan, err := kafka.MakePlan(ctx, adm, s.TopicsConfig())
	if err != nil {
		return nil, err
	}
	return plan.Apply(ctx, adm)
}
