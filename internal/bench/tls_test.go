package bench

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// overTLS is deliveries from Kafka to a receiver on TLS 1.3 keep-alive connections,
// from the first tenth of n to its end.
func overTLS(tb testing.TB, ca *testkit.Authority, n int) speed {
	tb.Helper()
	in := install(tb, testkit.NewFake(tb), "tls.")
	receiver := testkit.NewCheapTLSReceiver(tb, tls13(tb, ca), nil)
	in.opts.Egress = func(c *egress.Config) { c.RootCAs = ca.Pool() }
	in.register(endpoints, func(i int, ep *schemas.Endpoint) { ep.URL = receiver.URL("/" + endpointID(i)) })
	body := bytes.Repeat([]byte("x"), payloadSize)
	for i := range n {
		in.produce(in.record(endpointID(i%endpoints), strconv.Itoa(i), body))
	}
	check(tb, in.cl.Flush(tb.Context()))
	in.cfg.Dispatcher.MaxInFlight = inFlight
	stop := in.run()
	reached := func(k int) (time.Time, int64, time.Duration) {
		testkit.Eventually(tb, 2*time.Minute, func() string {
			if c := receiver.Count(); c < int64(k) {
				return fmt.Sprintf("%d of %d", c, k)
			}
			return ""
		})
		return time.Now(), receiver.Count(), cpuTime()
	}
	began, before, cpu := reached(n / 10)
	ended, after, cpuEnd := reached(n)
	stop()
	made := after - before
	return speed{rate: float64(made) / ended.Sub(began).Seconds(), cpu: (cpuEnd - cpu) / time.Duration(made)}
}

// bareTLS is what net/http does on its own with the same receiver and payload.
func bareTLS(tb testing.TB, ca *testkit.Authority, n int) speed {
	tb.Helper()
	receiver := testkit.NewCheapTLSReceiver(tb, tls13(tb, ca), nil)
	transport := &http.Transport{MaxIdleConnsPerHost: inFlight, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS13}}
	defer transport.CloseIdleConnections()
	body := bytes.Repeat([]byte("x"), payloadSize)
	url := receiver.URL("/")
	post := func() error {
		req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Body.Close()
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	began, cpu := time.Now(), cpuTime()
	for range inFlight {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := post(); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return speed{rate: float64(n) / time.Since(began).Seconds(), cpu: (cpuTime() - cpu) / time.Duration(n)}
}

func tls13(tb testing.TB, ca *testkit.Authority) *tls.Config {
	tb.Helper()
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.Issue(tb, testkit.CertSpec{}).TLS}}
}

// BenchmarkThroughputTLS alternates a bare TLS loop, the whole way over TLS 1.3 and the
// whole way over plain TCP in one run.
func BenchmarkThroughputTLS(b *testing.B) {
	const rounds, n = 3, 60_000
	ca := testkit.NewAuthority(b)
	for b.Loop() {
		var bare, secure, plain []float64
		for range rounds {
			x, y, z := bareTLS(b, ca, n), overTLS(b, ca, n), wholeWay(b, n)
			bare, secure, plain = append(bare, x.rate), append(secure, y.rate), append(plain, z.rate)
			b.Logf("bare TLS %s; whole way over TLS %s; over plain TCP %s", x, y, z)
		}
		b.ReportMetric(median(bare), "bare-tls/s")
		b.ReportMetric(median(secure), "deliveries-tls/s")
		b.ReportMetric(median(plain), "deliveries-plain/s")
		b.ReportMetric(median(secure)/median(bare), "ratio-to-bare-tls")
		b.ReportMetric(median(secure)/median(plain), "ratio-to-plain")
	}
}
