package attempts

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestALineSaysWhatHappenedAndWhatComesNext(t *testing.T) {
	cases := []struct {
		a    schemas.Attempt
		want []string
	}{
		{schemas.Attempt{Outcome: schemas.OutcomeDelivered, Status: 204, EndpointID: "good", Type: "a.b", Number: 1, Started: noon, Duration: 3.14},
			[]string{"12:00:00.000  delivered", "good", "a.b", "204", "3.1 ms", "attempt 1"}},
		{schemas.Attempt{Outcome: schemas.OutcomeRetry, Status: 500, Number: 2, Started: noon, NextTry: noon.Add(5 * time.Second), ResponseBody: "no\n"},
			[]string{"failed", "500", "attempt 2", "next try at 12:00:05, in 5s", `"no"`}},
		{schemas.Attempt{Outcome: schemas.OutcomeRetry, ErrorClass: schemas.ClassDNS, Error: "no such host", Number: 1, Started: noon.Add(-48 * time.Hour), NextTry: noon.Add(-time.Hour)},
			[]string{"2026-11-28 12:00:00.000", "dns", "no such host", "was due at 11:00:00"}},
		{schemas.Attempt{Outcome: schemas.OutcomeDead, Reason: schemas.ReasonExhausted, Status: 503, Number: 4, Generation: 1, Started: noon},
			[]string{"dead", "exhausted: its schedule has ended", "attempt 4, life 2"}},
		{schemas.Attempt{Outcome: schemas.OutcomeDead, Reason: schemas.ReasonEndpointUnknown, Started: noon},
			[]string{"no attempt", "endpoint_unknown"}},
	}
	for _, c := range cases {
		line := Style{Now: noon}.Line(&c.a)
		for _, want := range c.want {
			if !strings.Contains(line, want) {
				t.Errorf("%q lacks %q", line, want)
			}
		}
	}
}

func TestTheTimeOfTheNextTryAndTheWaitForItAgree(t *testing.T) {
	for next, want := range map[time.Duration]string{
		10600 * time.Millisecond: "next try at 12:00:11, in 11s", 10200 * time.Millisecond: "next try at 12:00:10, in 10s", 300 * time.Millisecond: "in less than 1s"} {
		now := noon.Add(500 * time.Millisecond)
		a := schemas.Attempt{Outcome: schemas.OutcomeRetry, NextTry: now.Add(next)}
		if line := (Style{Now: now}).Line(&a); !strings.Contains(line, want) {
			t.Errorf("%s: %q lacks %q", next, line, want)
		}
	}
}

func TestALongIDTakesItsRoomFromTheType(t *testing.T) {
	at := func(id string) int {
		return strings.Index(Style{Now: noon}.Line(&schemas.Attempt{EndpointID: id, Type: "a.b", Status: 204, Started: noon}), "204")
	}
	if short, long := at("shop"), at("ep_esomievdjsforauqckihxsh634"); short != long {
		t.Errorf("the answer stands at %d and %d", short, long)
	}
}

func TestNoRowIsWiderThanTheTerminal(t *testing.T) {
	made := "ep_esomievdjsforauqckihxsh634"
	cases := []struct {
		a    schemas.Attempt
		want []string
	}{
		{schemas.Attempt{Outcome: schemas.OutcomeDelivered, Status: 204, EndpointID: "good", Type: "proof.polygon.anchored", Number: 1, Started: noon, Duration: 0.31},
			[]string{"12:00:00  delivered 204    0.3 ms  #1  good         proof.polygon.anchored"}},
		{schemas.Attempt{Outcome: schemas.OutcomeRetry, Status: 500, EndpointID: "flaky", Type: "payment.captured", Number: 2, Started: noon, NextTry: noon.Add(5 * time.Second)},
			[]string{"failed 500", "#2  flaky        payment.captured, next in 5s"}},
		{schemas.Attempt{Outcome: schemas.OutcomeRetry, ErrorClass: schemas.ClassBlockedAddress, EndpointID: made, Type: "proof.polygon.anchored", Number: 12, Generation: 3, Started: noon.Add(-48 * time.Hour), NextTry: noon.Add(25 * time.Hour)},
			[]string{"2026-11-28 12:00:00", "blocked_address", made}},
		{schemas.Attempt{Outcome: schemas.OutcomeDead, Reason: schemas.ReasonEndpointDisabled, EndpointID: "shop-42", Type: "proof.polygon.anchored", Started: noon},
			[]string{"dead  ", "proof.po…, endpoint_disabled"}},
	}
	for _, c := range cases {
		c.a.DeliveryID, c.a.Error = "webhooks.deliveries-3fa94c1e-7-1042."+c.a.EndpointID, strings.Repeat("no such host ", 9)
		for columns := range 130 {
			for _, short := range []bool{true, false} {
				all := Style{Now: noon, Width: columns + 1, Short: short}.Line(&c.a)
				for row := range strings.SplitSeq(all, "\n") {
					if columns < roomyShort-1 && utf8.RuneCountInString(row) > columns+1 {
						t.Fatalf("%d columns: %q", columns+1, row)
					}
				}
			}
		}
		line := Style{Now: noon, Width: 80}.Line(&c.a)
		for _, want := range append(c.want, "\n          "+c.a.DeliveryID) {
			if !strings.Contains(line, want) {
				t.Errorf("%q lacks %q", line, want)
			}
		}
		if line := (Style{Now: noon, Width: 200}).Line(&c.a); line != (Style{Now: noon}).Line(&c.a) {
			t.Errorf("where there is room: %q", line)
		}
	}
}

func TestEveryReasonHasASentence(t *testing.T) {
	for _, r := range schemas.Reasons {
		if reasons[r] == "" {
			t.Errorf("%s", r)
		}
	}
}

func TestNoTextFromOutsideReachesTheTerminalRaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		evil := func(name string) string { return "\x1b[2J\u202e\r\n" + rapid.String().Draw(t, name) }
		a := schemas.Attempt{EndpointID: evil("endpoint"), Type: evil("type"), DeliveryID: evil("delivery"), Outcome: schemas.Outcome(evil("outcome")),
			Reason: schemas.Reason(evil("reason")), ErrorClass: schemas.ErrorClass(evil("class")), Error: evil("error"), ResponseBody: evil("body")}
		if rapid.Bool().Draw(t, "dead") {
			a.Outcome = schemas.OutcomeDead
		}
		for _, columns := range []int{0, 80} {
			for _, r := range (Style{Now: noon, Width: columns, Short: columns > 0}).Line(&a) {
				if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
					t.Fatalf("%U in the line", r)
				}
			}
		}
	})
}

func TestFilterWantsAllThatIsSet(t *testing.T) {
	a := schemas.Attempt{DeliveryID: "d", EventID: "e", MessageID: "m", Subject: "s", EndpointID: "p", Started: noon, Outcome: schemas.OutcomeRetry}
	good := []Filter{{}, {Delivery: "d"}, {Event: "e", Message: "m"}, {Subject: "s", Endpoint: "p", Since: noon, Failed: true}}
	bad := []Filter{{Delivery: "x"}, {Event: "x"}, {Message: "x"}, {Subject: "x", Endpoint: "p"}, {Endpoint: "x"}, {Since: noon.Add(1)}}
	for _, f := range good {
		if !f.Match(&a) {
			t.Errorf("%+v refuses", f)
		}
	}
	for _, f := range bad {
		if f.Match(&a) {
			t.Errorf("%+v takes", f)
		}
	}
	a.Outcome = schemas.OutcomeDelivered
	if (&Filter{Failed: true}).Match(&a) {
		t.Error("delivered is taken for failed")
	}
}

func TestADeliveryIDNamesItsEndpoint(t *testing.T) {
	f := Filter{Delivery: "webhooks.deliveries-00112233-3-42.ep_1"}
	if f.endpoint() != "ep_1" {
		t.Error(f.endpoint())
	}
}
