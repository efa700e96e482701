// Command milena delivers Kafka events to webhooks. Each verb is one file; what a
// verb does is in the packages that it calls.
//
// Exit codes: 0 done, 1 the job failed, 2 wrong usage or configuration (before
// anything was touched), 3 differences. Data goes to stdout, all else to stderr.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	p := &program{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ()}
	code := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
