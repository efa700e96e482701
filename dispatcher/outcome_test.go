package dispatcher

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Whatever a receiver sends, a wait is never negative, never longer than the bound, and
// only what RFC 9110 allows counts: digits, or a date to come.
func FuzzParseRetryAfter(f *testing.F) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, v := range []string{"", "0", "1", "120", "-1", "1.5", "1e3", "0x10", " 7 ", "+7", "99999999999999999999999999", "９",
		"Mon, 30 Nov 2026 12:05:00 GMT", "Monday, 30-Nov-26 12:05:00 GMT", "Mon Nov 30 12:05:00 2026", "Mon, 30 Nov 1926 12:05:00 GMT", "Mon, 30 Nov 9999 12:05:00 GMT"} {
		f.Add(v, "60")
	}
	digits := regexp.MustCompile(`^[0-9]+$`)
	f.Fuzz(func(t *testing.T, first, second string) {
		got := parseRetryAfter(http.Header{"Retry-After": {first, second}}, now)
		if got < 0 || got > schemas.MaxRetryAfter {
			t.Fatalf("%q: %s", first, got)
		}
		if alone := parseRetryAfter(http.Header{"Retry-After": {first}}, now); alone != got {
			t.Fatalf("%q: %s alone, %s before another", first, alone, got)
		}
		_, notDate := http.ParseTime(first)
		switch {
		case digits.MatchString(first):
			if s, err := strconv.ParseInt(first, 10, 64); err == nil && got != min(time.Duration(min(s, 1<<32))*time.Second, schemas.MaxRetryAfter) {
				t.Fatalf("%q: %s", first, got)
			}
		case notDate != nil && got != 0:
			t.Fatalf("%q is neither seconds nor a date, and counts %s", first, got)
		}
	})
}
