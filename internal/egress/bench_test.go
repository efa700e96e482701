package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// cheap is a receiver that does as little as possible: it counts the bytes of the
// requests, which are all of one length, and answers each.
func cheap(b *testing.B, wrap func(net.Listener) net.Listener, size int) (addr string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	l = wrap(l)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				buf := make([]byte, 8<<10)
				mark := bytes.Repeat([]byte("x"), size)
				for {
					n := 0
					for !bytes.HasSuffix(buf[:n], mark) {
						m, err := c.Read(buf[n:])
						if err != nil {
							return
						}
						n += m
					}
					if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
						return
					}
				}
			})
		}
	})
	b.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func benchmark(b *testing.B, rt http.RoundTripper, url string, size int) {
	body := bytes.Repeat([]byte("x"), size)
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ctx, cancel := context.WithTimeout(b.Context(), 15*time.Second)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				b.Error(err)
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				b.Error(err)
				cancel()
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			cancel()
		}
	})
}

// BenchmarkPost compares the guarded way out with a bare http.Transport, plain and
// over TLS 1.3 with connections that are kept.
func BenchmarkPost(b *testing.B) {
	const size = 1024
	ca := newAuthority(b)
	cert := ca.issue(b, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "127.0.0.1")
	plain := func(l net.Listener) net.Listener { return l }
	private := func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
	}
	for _, scheme := range []string{"http", "https"} {
		wrap := map[string]func(net.Listener) net.Listener{"http": plain, "https": private}[scheme]
		b.Run(scheme+"/guarded", func(b *testing.B) {
			addr := cheap(b, wrap, size)
			e := mustNew(b, Config{AllowCIDRs: loopback, AllowHTTP: true, RootCAs: ca.pool, MaxIdleConnsPerHost: 256})
			benchmark(b, e.RoundTripper(), scheme+"://"+addr+"/", size)
		})
		b.Run(scheme+"/bare", func(b *testing.B) {
			addr := cheap(b, wrap, size)
			t := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: ca.pool}}
			b.Cleanup(t.CloseIdleConnections)
			benchmark(b, t, scheme+"://"+addr+"/", size)
		})
	}
}
