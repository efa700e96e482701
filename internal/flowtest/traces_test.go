//go:build !kafka

package flowtest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/tracing"
)

// spanCollector takes what is exported by OTLP over HTTP.
type spanCollector struct {
	mu    sync.Mutex
	spans []*tracev1.Span
}

func (c *spanCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &req)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

// The producer's trace reaches the receiver at every attempt, and what happened in
// between is told by links: no span is open while a delivery waits.
func TestATraceLeadsFromTheProducerThroughParkAndReleaseToTheReceiver(t *testing.T) {
	spans := &spanCollector{}
	server := httptest.NewServer(spans)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	f := newFlow(t)
	tracer, err := tracing.FromEnvironment(t.Context(), "test", "test/1", f.logs)
	must(t, err)

	f.endpoint("mended", schedule(100*time.Millisecond))
	var mu sync.Mutex
	var carried []string
	f.receiver.Script("/mended", func(n int, r *testkit.Received) testkit.Answer {
		mu.Lock()
		defer mu.Unlock()
		carried = append(carried, r.Header.Get("Traceparent"))
		if len(carried) == 1 {
			return testkit.Answer{Status: 503}
		}
		return testkit.Answer{Status: 200}
	})
	f.opts.Traces = tracer
	p := f.start()
	f.ready(p)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	body := []byte(`{}`)
	f.want("mended", "/test", "traced", body)
	testkit.Produce(t, f.client, f.record("mended", "traced", body,
		kgo.RecordHeader{Key: "traceparent", Value: []byte("00-" + trace + "-00f067aa0ba902b7-01")}))
	f.delivered(time.Minute)
	f.awaitDelivered(1) // the first attempt, which fails, is what arrives
	f.settled(20 * time.Second)
	p.end(t)
	must(t, tracer.Close(t.Context()))

	spans.mu.Lock()
	defer spans.mu.Unlock()
	slices.SortFunc(spans.spans, func(a, b *tracev1.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	var names []string
	var posts []string
	for i, s := range spans.spans {
		names = append(names, strings.TrimPrefix(s.Name, "send "+f.cfg.Prefix))
		if hex.EncodeToString(s.TraceId) != trace || hex.EncodeToString(s.ParentSpanId) != "00f067aa0ba902b7" {
			t.Errorf("%s is in trace %x below %x", s.Name, s.TraceId, s.ParentSpanId)
		}
		if i > 0 && (len(s.Links) != 1 || !slices.Equal(s.Links[0].SpanId, spans.spans[i-1].SpanId)) {
			t.Errorf("%s has the links %v", s.Name, s.Links)
		}
		if s.Name == "POST" {
			posts = append(posts, "00-"+trace+"-"+hex.EncodeToString(s.SpanId)+"-01")
		}
	}
	if want := []string{"POST", "retry.0s", "deliveries", "POST"}; !slices.Equal(names, want) {
		t.Errorf("spans %v, want %v", names, want)
	}
	if !slices.Equal(carried, posts) {
		t.Errorf("requests carried %v, the spans were %v", carried, posts)
	}
}
