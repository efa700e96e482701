package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// errHangup ends a run as Ctrl-C does.
var errHangup = errors.New("the terminal was closed")

// outlasts keeps a terminal that is closed and a pipe that nobody reads from killing the
// process: a run that is killed blocks its endpoints until its record is stale. The first
// ends the context that is returned, the second the write. Under nohup neither does.
func outlasts(ctx context.Context) (lasting context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	pipe := make(chan os.Signal, 1) // whoever is notified is not killed, and the write fails
	signal.Notify(pipe, syscall.SIGPIPE)
	hup := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hup, syscall.SIGHUP)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-hup:
			cancel(errHangup)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
		signal.Stop(hup)
		signal.Stop(pipe)
	}
}
