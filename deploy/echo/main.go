// Command echo is the receiver of docker-compose.yml: it verifies the signature of
// every webhook, says in one line what it was, and answers 204, or 401 where the
// signature is wrong. It is for trying out and an example of package verify.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/milena-project/milena/signer/verify"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	if err := run(log); err != nil {
		log.Error("the receiver ended", "err", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(log *slog.Logger) error {
	secret, err := os.ReadFile(os.Getenv("ECHO_SECRET_FILE"))
	if err != nil {
		return err
	}
	h, err := handler(log, strings.TrimSpace(string(secret)))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt) //nolint:forbidigo // the program's own
	defer stop()
	s := &http.Server{Addr: os.Getenv("ECHO_ADDR"), Handler: h, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Shutdown(context.WithoutCancel(ctx)) })()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler shows what is verified.
func handler(log *slog.Logger, secret string) (http.Handler, error) {
	v, err := verify.New(verify.Config{Secrets: []string{secret}})
	if err != nil {
		return nil, err
	}
	only, err := verify.Middleware(v, verify.Options{
		Store:     verify.NewMemory(0, 0),
		OnRefused: func(_ *http.Request, err error) { log.Warn("refused", "err", err) },
	})
	if err != nil {
		return nil, err
	}
	return only(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, _ := verify.FromContext(r.Context())
		log.Info("webhook", "message_id", m.ID, "type", r.Header.Get("ce-type"), "delivery_id", r.Header.Get("milena-delivery-id"),
			"attempt", r.Header.Get("milena-attempt"), "body", string(m.Body))
		w.WriteHeader(http.StatusNoContent)
	})), nil
}
