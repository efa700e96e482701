package dlq

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func TestGlobIsWhatARegularExpressionSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab.*]{0,8}`).Draw(t, "pattern")
		text := rapid.StringMatching(`[ab.*]{0,10}`).Draw(t, "text")
		re := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		if glob(pattern, text) != re.MatchString(text) {
			t.Fatalf("glob(%q, %q) = %v", pattern, text, glob(pattern, text))
		}
	})
}

func TestAFilterSurvivesItsRecord(t *testing.T) {
	now := time.Now()
	q := Query{Endpoints: []string{"b", "a", "b"}, Tenants: []string{"acme"}, Types: []string{"order.*"}, Subjects: []string{"s"},
		Reasons: []string{"gone"}, Statuses: []string{"5xx", "404", "none"}, ErrorClasses: []string{"dns", "answered"}, IDs: []string{"x"},
		Since: "3d", Until: "2h", Replayed: true, ExpiringWithin: "24h", Limit: 7}
	f, err := q.Resolve(now)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back Filter
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(f, back) {
		t.Errorf("%v\n%+v\n%+v", err, f, back)
	}
	if f.All() || !f.Since.Equal(now.Add(-72*time.Hour).Truncate(time.Millisecond)) || len(f.Endpoints) != 2 {
		t.Errorf("%+v", f)
	}
	if empty, err := (Query{Limit: 5}).Resolve(now); err != nil || !empty.All() {
		t.Errorf("%+v %v", empty, err)
	}
}

func TestBadValuesNameTheirFlag(t *testing.T) {
	for flag, q := range map[string]Query{
		"endpoint":        {Endpoints: []string{"a b"}},
		"tenant":          {Tenants: []string{""}},
		"reason":          {Reasons: []string{"Gone"}},
		"status":          {Statuses: []string{"50x"}},
		"error-class":     {ErrorClasses: []string{"http"}},
		"since":           {Since: "-2h"},
		"until":           {Since: "1h", Until: "2h"},
		"not-replayed":    {Replayed: true, NotReplayed: true},
		"expiring-within": {ExpiringWithin: "soon"},
		"limit":           {Limit: -1},
	} {
		var bad *QueryError
		if _, err := q.Resolve(time.Now()); !errors.As(err, &bad) || bad.Flag != flag {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestValuesThatNothingCanHaveAreRefused(t *testing.T) {
	now := time.Date(2026, 12, 1, 13, 0, 0, 0, time.FixedZone("", 3600))
	for want, q := range map[string]Query{
		`--status "999": want a status such as 404 (100 to 599)`:                           {Statuses: []string{"404", "999"}},
		`--status "6xx": want a status`:                                                    {Statuses: []string{"6xx"}},
		`--since "2026-12-01T12:00:01Z": want a time that is past; it is 2026-12-01 13:00`: {Since: "2026-12-01T12:00:01Z"},
		`--until "2h": want a time after --since 1h`:                                       {Since: "1h", Until: "2h"},
	} {
		if _, err := q.Resolve(now); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestATimeIsReadAsItIsPrinted(t *testing.T) {
	now := time.Date(2026, 12, 1, 13, 0, 0, 0, time.FixedZone("", 3600))
	want := time.Date(2026, 12, 1, 11, 58, 48, 0, time.UTC)
	for _, text := range []string{"2026-12-01 12:58:48", "2026-12-01T12:58:48", "2026-12-01T12:58:48+01:00", "2026-12-01T11:58:48Z", Clock(want)} {
		if f, err := (Query{Since: text}).Resolve(now); err != nil || !f.Since.Equal(want) {
			t.Errorf("%s: %v %v", text, f.Since, err)
		}
	}
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"2h", "3d", "2026-11-30", "2026-11-30T12:00:00Z", "5xx", "404", "1e9d", "-1d", "NaNd"} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		for _, q := range []Query{{Since: s}, {Until: s}, {Statuses: []string{s}}, {ExpiringWithin: s}, {IDs: []string{s}}, {Types: []string{s}}} {
			filter, err := q.Resolve(now)
			var bad *QueryError
			if err != nil {
				if !errors.As(err, &bad) {
					t.Fatalf("%q: %v", s, err)
				}
				continue
			}
			filter.Match(&schemas.Letter{}, now)
			if q.Since != "" && filter.Since.IsZero() {
				t.Fatalf("%q is no time, and no error", s)
			}
		}
	})
}

func TestSeenIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s seen
		want := map[uint64]bool{}
		for _, h := range rapid.SliceOfN(rapid.Uint64Range(1, 5000), 0, 3000).Draw(t, "hashes") {
			h = h<<56 | h // few tables, many collisions
			if s.add(h) == want[h] {
				t.Fatalf("add(%d)", h)
			}
			want[h] = true
		}
		if s.n != len(want) {
			t.Fatalf("%d, want %d", s.n, len(want))
		}
		for h := range uint64(5000) {
			if h = (h+1)<<56 | (h + 1); s.has(h) != want[h] {
				t.Fatalf("has(%d)", h)
			}
		}
	})
}

func TestExpiryIsThatOfTheTopic(t *testing.T) {
	l := &schemas.Letter{}
	now := time.Now()
	f := Filter{ExpiresBefore: now.Add(24 * time.Hour)}
	if f.Match(l, now.Add(-1000*time.Hour)) {
		t.Error("a topic that keeps everything lets nothing expire")
	}
	f.WrittenBefore = f.ExpiresBefore.Add(-30 * 24 * time.Hour)
	if f.Match(l, now.Add(-28*24*time.Hour)) || !f.Match(l, now.Add(-29*24*time.Hour-time.Minute)) {
		t.Error("it expires when it was written thirty days ago")
	}
}
