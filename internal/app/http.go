package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"
)

// Handler serves what the process has on its HTTP address: /metrics, /healthz and
// /readyz.
func (a *App) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.Alive() {
			http.Error(w, "a poll loop stands still; a restart helps", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	return mux
}

// DebugHandler is served on the second listener, which takes loopback only.
func (a *App) DebugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	if a.dispatch != nil {
		mux.Handle("GET /debug/lanes/{endpoint}", a.lanesHandler())
	}
	return mux
}

// serveHTTP listens on the addresses of the configuration; an empty one is none.
// Nothing is served any more when stop has returned.
func (a *App) serveHTTP(ctx context.Context) (stop func(), err error) {
	var servers []*http.Server
	var wg sync.WaitGroup
	stop = func() {
		for _, s := range servers {
			_ = s.Close()
		}
		wg.Wait()
	}
	for _, l := range []struct {
		key, addr string
		handler   http.Handler
	}{{"http.addr", a.cfg.HTTP.Addr, a.Handler()}, {"http.debug_addr", a.cfg.HTTP.DebugAddr, a.DebugHandler()}} {
		if l.addr == "" {
			continue
		}
		ln, err := (&net.ListenConfig{}).Listen(context.WithoutCancel(ctx), "tcp", l.addr)
		if err != nil {
			stop()
			return nil, fmt.Errorf("%w: %s = %s: %w; choose another address, or end the process that has it", ErrRefused, l.key, l.addr, err)
		}
		s := &http.Server{Handler: l.handler, ReadHeaderTimeout: 5 * time.Second}
		servers = append(servers, s)
		wg.Go(func() {
			if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				a.log.Error("HTTP server ended", "addr", l.addr, "err", err)
			}
		})
	}
	return stop, nil
}
