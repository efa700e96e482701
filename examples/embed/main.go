// Embed runs Milena inside a program of your own. It wants MILENA_KAFKA_BROKERS and
// MILENA_KEYRING (the entries themselves: "$(cat keyring)"); it reads no file.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/milena-project/milena"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	m, err := milena.New(milena.Config{
		Brokers:  strings.Split(os.Getenv("MILENA_KAFKA_BROKERS"), ","),
		KeyRing:  os.Getenv("MILENA_KEYRING"),
		Settings: map[string]string{"prefix": "webhooks."},
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Print(http.ListenAndServe("127.0.0.1:9090", m.Handler())) }()
	if err := m.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
