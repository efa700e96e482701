package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/milena-project/milena/internal/kafka"
)

// startRetry is the pause between two tries to check the topics.
const startRetry = 3 * time.Second

// awaitStart returns when the topics are as they must be and the registry is
// caught up. A Kafka that does not answer is waited for, and said every few seconds.
func (a *App) awaitStart(ctx context.Context, refused <-chan error) error {
	for {
		err := a.checkTopics(ctx)
		var differs *kafka.CheckError
		switch {
		case err == nil:
			return a.awaitRegistry(ctx, refused)
		case errors.As(err, &differs):
			return fmt.Errorf("%w: %w", ErrRefused, err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		a.setNotUp(fmt.Errorf("no answer from Kafka: %w", err))
		a.log.Warn("waiting for Kafka", "brokers", a.cfg.Kafka.Brokers, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-refused:
			return fmt.Errorf("%w: %w", ErrRefused, err)
		case <-time.After(startRetry):
		}
	}
}

func (a *App) checkTopics(ctx context.Context) error {
	cl, err := a.kafka.NewClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var roles []kafka.Role
	for _, name := range a.roles() {
		roles = append(roles, kafka.Role(name))
	}
	topics := a.cfg.TopicsConfig()
	checked, err := kafka.Check(ctx, cl, topics, roles...)
	if err == nil && checked.Partitions != topics.Partitions {
		err = &kafka.CheckError{Differences: []kafka.Difference{{
			Topic: a.names.Deliveries(), Kind: kafka.KindPartitions, ByHand: true,
			Why:  "topics.partitions says so; set it to what is there, or stop all processes and raise all topics",
			Have: fmt.Sprint(checked.Partitions), Want: fmt.Sprint(topics.Partitions),
		}}}
	}
	return err
}

// registryCheck is how often the registry is asked whether it has caught up.
const registryCheck = 20 * time.Millisecond

func (a *App) awaitRegistry(ctx context.Context, refused <-chan error) error {
	tick := time.NewTicker(registryCheck)
	defer tick.Stop()
	for {
		err := a.follower.Ready()
		if err == nil {
			return nil
		}
		a.setNotUp(fmt.Errorf("registry: %w", err))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case err := <-refused:
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
}
