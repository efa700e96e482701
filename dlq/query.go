package dlq

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Query is a filter as a person writes it: the same words for every verb. Times are
// RFC 3339, local as they are printed, a date, or how long ago (2h, 3d).
type Query struct {
	Endpoints      []string
	Tenants        []string
	Types          []string
	Subjects       []string
	Reasons        []string
	Statuses       []string // 404, 5xx, none
	ErrorClasses   []string // dns …, answered
	IDs            []string
	Since, Until   string
	Replayed       bool
	NotReplayed    bool
	ExpiringWithin string
	Limit          int
}

// QueryError is a value that means nothing: which flag, what it held, what would be right.
type QueryError struct{ Flag, Value, Want string }

func (e *QueryError) Error() string {
	return fmt.Sprintf("--%s %q: want %s", e.Flag, e.Value, e.Want)
}

// Resolve makes a Filter as of now. The error is a *QueryError.
func (q Query) Resolve(now time.Time) (Filter, error) {
	f := Filter{Tenants: q.Tenants, Types: q.Types, Subjects: q.Subjects, IDs: q.IDs,
		Replayed: q.Replayed, NotReplayed: q.NotReplayed, Limit: q.Limit}
	for _, step := range []func(*Filter, time.Time) error{q.endpoints, q.words, q.statuses, q.times, q.rest} {
		if err := step(&f, now); err != nil {
			return Filter{}, err
		}
	}
	return f, nil
}

func (q Query) endpoints(f *Filter, _ time.Time) error {
	for _, id := range q.Endpoints {
		if !schemas.ValidEndpointID(id) {
			return &QueryError{"endpoint", id, "an endpoint id (1 to 64 of A-Z a-z 0-9 _ -)"}
		}
	}
	f.Endpoints = sorted(q.Endpoints)
	return nil
}

func (q Query) words(f *Filter, _ time.Time) error {
	for _, r := range q.Reasons {
		if !slices.Contains(schemas.Reasons, schemas.Reason(r)) {
			return &QueryError{"reason", r, "one of " + join(schemas.Reasons)}
		}
		f.Reasons = append(f.Reasons, schemas.Reason(r))
	}
	known := append(slices.Clone(schemas.ErrorClasses), ClassAnswered)
	for _, c := range q.ErrorClasses {
		if !slices.Contains(known, schemas.ErrorClass(c)) {
			return &QueryError{"error-class", c, "one of " + join(known)}
		}
		f.ErrorClasses = append(f.ErrorClasses, schemas.ErrorClass(c))
	}
	return nil
}

func (q Query) statuses(f *Filter, _ time.Time) error {
	for _, s := range q.Statuses {
		r, ok := parseStatus(s)
		if !ok {
			return &QueryError{"status", s, "a status such as 404 (100 to 599), a class such as 5xx (1xx to 5xx), or none; what is no status of HTTP's is --error-class protocol"}
		}
		f.Statuses = append(f.Statuses, r)
	}
	return nil
}

func parseStatus(s string) (StatusRange, bool) {
	if s == "none" {
		return StatusRange{}, true
	}
	if class, ok := strings.CutSuffix(strings.ToLower(s), "xx"); ok && len(class) == 1 && class >= "1" && class <= "5" {
		from := int(class[0]-'0') * 100
		return StatusRange{from, from + 99}, true
	}
	n, err := strconv.Atoi(s)
	return StatusRange{n, n}, err == nil && len(s) == 3 && n >= 100 && n <= 599
}

func (q Query) times(f *Filter, now time.Time) error {
	var err error
	if f.Since, err = parseTime("since", q.Since, now); err != nil {
		return err
	}
	if f.Until, err = parseTime("until", q.Until, now); err != nil {
		return err
	}
	if f.Since.After(now) {
		return &QueryError{"since", q.Since, "a time that is past; it is " + now.Format(clockLayout) + " now"}
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return &QueryError{"until", q.Until, "a time after --since " + q.Since}
	}
	if q.ExpiringWithin != "" {
		d, ok := parseSpan(q.ExpiringWithin)
		if !ok {
			return &QueryError{"expiring-within", q.ExpiringWithin, "a duration such as 24h or 2d"}
		}
		f.ExpiresBefore = now.Add(d).UTC().Truncate(time.Millisecond)
	}
	return nil
}

// parseTime reads a time or how long ago it was. A time without a zone is local.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, ok := parseSpan(text); ok {
		return now.Add(-d).UTC().Truncate(time.Millisecond), nil
	}
	for _, layout := range []string{time.RFC3339, clockLayout, time.DateTime, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, &QueryError{flag, text, "how long ago (2h, 3d) or a time such as " + now.UTC().Format(time.RFC3339) + ", or local: " + now.Format(time.DateTime)}
}

// parseSpan reads a duration; days are 24 hours.
func parseSpan(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < 36500 {
			return time.Duration(n * 24 * float64(time.Hour)), true
		}
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

func (q Query) rest(*Filter, time.Time) error {
	for flag, values := range map[string][]string{"tenant": q.Tenants, "type": q.Types, "subject": q.Subjects, "id": q.IDs} {
		if slices.Contains(values, "") {
			return &QueryError{flag, "", "some text"}
		}
	}
	switch {
	case q.Replayed && q.NotReplayed:
		return &QueryError{"not-replayed", "true", "only one of --replayed and --not-replayed"}
	case q.Limit < 0:
		return &QueryError{"limit", strconv.Itoa(q.Limit), "0 (all) or more"}
	}
	return nil
}

func sorted(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}

func join[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}
