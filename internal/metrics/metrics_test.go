package metrics

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/schemas"
)

// scraped is the page as Prometheus gets it.
func scraped(tb testing.TB, m *Metrics) string {
	tb.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		tb.Fatalf("%d: %s", w.Code, w.Body.String())
	}
	return w.Body.String()
}

// series counts the lines that are samples.
func series(page string) (n int) {
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// fill counts everything that can be counted, under every combination of labels:
// no process ever has more series than this.
func fill(m *Metrics) {
	for _, outcome := range outcomes {
		for status := 0; status < 600; status += 100 {
			for _, class := range errorClasses {
				for origin := range 3 {
					a := schemas.Attempt{Outcome: schemas.Outcome(outcome), Status: status, ErrorClass: schemas.ErrorClass(class), Number: 1}
					switch origin {
					case 1:
						a.Number = 2
					case 2:
						a.Generation = 1
					}
					m.Attempted(&a)
				}
			}
		}
	}
	for _, tier := range []string{"0s", "10s", "1m", "5m", "30m", "2h", "6h", "12h", "24h"} {
		m.Parked(tier)
		m.Left(tier)
		m.Backlog(tier, 1, 1, time.Now())
	}
	for i := range 30 { // Milena's topics and some sources
		topic := fmt.Sprintf("webhooks.topic-%d", i)
		m.Kafka.OnProduceBatchWritten(kgo.BrokerMetadata{}, topic, 0, kgo.ProduceBatchMetrics{NumRecords: 1})
		m.Kafka.OnFetchBatchRead(kgo.BrokerMetadata{}, topic, 0, kgo.FetchBatchMetrics{NumRecords: 1})
	}
	for _, role := range []string{"dispatcher", "releaser", "router"} {
		m.Assigned(role)
	}
	m.OpenLetters(nil, time.Now(), time.Now())
}

// busy is the state of a process with 50,000 active endpoints of a million: what
// there are many of stands in no label.
func busy() State {
	st := State{
		Owned: map[string]int{"dispatcher": 12, "releaser": 27, "router": 8}, Endpoints: 1_000_000, Registry: time.Now(),
		Dispatcher: &DispatcherState{
			InFlight: 4096, Owns: true, Lanes: map[string]int{"sending": 45_000, "held": 5_000}, Breakers: map[string]int{"closed": 45_000, "open": 5_000},
		},
	}
	for i := range 20 {
		st.Dispatcher.Worst = append(st.Dispatcher.Worst, WorstEndpoint{ID: fmt.Sprintf("ep_%060d", i), Why: "breaker", Records: 1_000 - i})
	}
	for i := range 20 {
		st.Topics = append(st.Topics, TopicState{Topic: fmt.Sprintf("source-%d", i), Unfinished: 1})
	}
	return st
}

func TestAScrapeIsSmallWhateverIsCounted(t *testing.T) {
	m := New("v1", busy)
	fill(m)
	page := scraped(t, m)
	n := series(page)
	t.Logf("%d series, %d bytes", n, len(page))
	if n > 5_000 || len(page) >= 2<<20 {
		t.Errorf("%d series and %d bytes; at most 5,000 and 2 MB are wanted", n, len(page))
	}
}

func TestEveryDeclaredMetricIsServed(t *testing.T) {
	m := New("v1", busy)
	fill(m)
	page := scraped(t, m)
	for _, d := range Declared {
		if !strings.Contains(page, "# TYPE "+d.Name+" "+string(d.Kind)+"\n") {
			t.Errorf("%s is declared as a %s and not served", d.Name, d.Kind)
		}
	}
	for line := range strings.Lines(page) {
		name, ok := strings.CutPrefix(line, "# TYPE milena_")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut("milena_"+name, " ")
		found := false
		for _, d := range Declared {
			found = found || d.Name == name
		}
		if !found {
			t.Errorf("%s is served and not declared", name)
		}
	}
}

func TestWhatWasNeverPostedIsNoAttempt(t *testing.T) {
	m := New("v1", func() State { return State{} })
	m.Attempted(&schemas.Attempt{Outcome: schemas.OutcomeDead, Reason: schemas.ReasonExpired, Number: 3})
	m.Attempted(&schemas.Attempt{Outcome: schemas.OutcomeDuplicate})
	m.Attempted(&schemas.Attempt{Outcome: schemas.OutcomeDelivered, Status: 204, Number: 1})
	m.Attempted(&schemas.Attempt{Outcome: schemas.OutcomeRetry, ErrorClass: schemas.ClassTimeout, Number: 2})
	page := scraped(t, m)
	var got bytes.Buffer
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "milena_attempts_total") {
			got.WriteString(line)
		}
	}
	want := `milena_attempts_total{error_class="",origin="first",outcome="delivered",status_class="2xx"} 1
milena_attempts_total{error_class="timeout",origin="retry",outcome="retry",status_class=""} 1
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// An alert on one of these would end and begin again with every restart.
func TestWhatIsNotKnownYetIsAbsentAndNotZero(t *testing.T) {
	st := State{Dispatcher: &DispatcherState{}}
	m := New("v1", func() State { return st })
	has := func(names ...string) {
		t.Helper()
		page := scraped(t, m)
		for _, name := range []string{"milena_held_records", "milena_oldest_held_timestamp_seconds", "milena_dead_letters_open", "milena_oldest_dead_letter_timestamp_seconds",
			"milena_oldest_dead_letter_expires_timestamp_seconds", "milena_waiting_records", "milena_overdue_records", "milena_oldest_overdue_timestamp_seconds"} {
			if strings.Contains(page, "\n"+name) != slices.Contains(names, name) {
				t.Errorf("%s: served %v", name, !slices.Contains(names, name))
			}
		}
	}
	has()
	st.Dispatcher.Owns = true
	m.OpenLetters(nil, time.Time{}, time.Time{})
	m.Backlog("1m", 3, 1, time.Time{}) // overdue in a partition that this process has not, or has not read
	has("milena_held_records", "milena_oldest_held_timestamp_seconds", "milena_dead_letters_open", "milena_oldest_dead_letter_timestamp_seconds",
		"milena_oldest_dead_letter_expires_timestamp_seconds", "milena_waiting_records", "milena_overdue_records")
	st.Dispatcher.Owns = false
	m.NoLetters()
	m.Backlog("1m", 3, 0, time.Time{})
	has("milena_waiting_records", "milena_overdue_records", "milena_oldest_overdue_timestamp_seconds")
}

func TestNothingReadyCountsAsReadyNow(t *testing.T) {
	began := time.Now().Truncate(time.Second)
	m := New("v1", func() State { return State{Topics: []TopicState{{Topic: "webhooks.deliveries"}}} })
	var at float64
	for line := range strings.Lines(scraped(t, m)) {
		if v, ok := strings.CutPrefix(line, `milena_oldest_ready_timestamp_seconds{topic="webhooks.deliveries"} `); ok {
			if _, err := fmt.Sscan(v, &at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if at < float64(began.Unix()) {
		t.Errorf("%f, and now is %d", at, began.Unix())
	}
}

// What is counted for each attempt allocates nothing.
func TestCountingAnAttemptAllocatesNothing(t *testing.T) {
	m := New("v1", func() State { return State{} })
	a := &schemas.Attempt{Outcome: schemas.OutcomeDelivered, Status: 200, Number: 1, Duration: 12, Delay: 3}
	m.Attempted(a)
	if n := testing.AllocsPerRun(100, func() {
		m.Attempted(a)
		m.Delivered(time.Second, true)
	}); n != 0 {
		t.Errorf("%.0f allocations an attempt", n)
	}
}

func BenchmarkAttempted(b *testing.B) {
	m := New("v1", func() State { return State{} })
	a := &schemas.Attempt{Outcome: schemas.OutcomeDelivered, Status: 200, Number: 1, Duration: 12, Delay: 3}
	b.ReportAllocs()
	for b.Loop() {
		m.Attempted(a)
		m.Delivered(time.Second, true)
	}
}

// BenchmarkScrape is one scrape of the fullest process there can be.
func BenchmarkScrape(b *testing.B) {
	m := New("v1", busy)
	fill(m)
	b.ReportAllocs()
	for b.Loop() {
		page := scraped(b, m)
		b.ReportMetric(float64(series(page)), "series")
		b.ReportMetric(float64(len(page)), "bytes")
	}
}
