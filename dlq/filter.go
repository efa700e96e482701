package dlq

import (
	"slices"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Filter selects dead letters. Every field that is set must hold; of a list one
// must. All times are absolute, so that a filter means the same whenever it is used
// again; Query.Resolve makes it. The zero Filter selects all.
type Filter struct {
	Endpoints    []string             `json:"endpoint,omitempty"`
	Tenants      []string             `json:"tenant,omitempty"`
	Types        []string             `json:"type,omitempty"`    // * stands for anything
	Subjects     []string             `json:"subject,omitempty"` // * stands for anything
	Reasons      []schemas.Reason     `json:"reason,omitempty"`
	Statuses     []StatusRange        `json:"status,omitempty"` // of the last attempt
	ErrorClasses []schemas.ErrorClass `json:"error_class,omitempty"`
	IDs          []string             `json:"id,omitempty"` // delivery id, letter key, message id or event id

	Since       time.Time `json:"since,omitzero"` // died then or later
	Until       time.Time `json:"until,omitzero"` // died before
	Replayed    bool      `json:"replayed,omitempty"`
	NotReplayed bool      `json:"not_replayed,omitempty"`

	// ExpiresBefore: the topic's retention ends then or earlier. WrittenBefore is the
	// same as a time of writing; Store.Resolve computes it from the topic.
	ExpiresBefore time.Time `json:"expires_before,omitzero"`
	WrittenBefore time.Time `json:"written_before,omitzero"`

	Limit int `json:"limit,omitempty"` // only the newest; 0: all
}

// ClassAnswered stands in Filter.ErrorClasses for letters whose last attempt had an
// HTTP answer, and therefore no error class.
const ClassAnswered schemas.ErrorClass = "answered"

// StatusRange is an inclusive range of HTTP statuses; 0 to 0 is no answer at all.
type StatusRange struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// All reports whether the filter selects everything, but for its limit.
func (f *Filter) All() bool {
	return len(f.Endpoints) == 0 && len(f.Tenants) == 0 && len(f.Types) == 0 && len(f.Subjects) == 0 &&
		len(f.Reasons) == 0 && len(f.Statuses) == 0 && len(f.ErrorClasses) == 0 && len(f.IDs) == 0 &&
		f.Since.IsZero() && f.Until.IsZero() && f.ExpiresBefore.IsZero() && !f.Replayed && !f.NotReplayed
}

// Match reports whether a letter is selected, the limit aside. written is the time of
// its record.
func (f *Filter) Match(l *schemas.Letter, written time.Time) bool {
	return oneOf(f.Endpoints, l.EndpointID) &&
		oneOf(f.Tenants, l.Event.Tenant) &&
		like(f.Types, l.Event.Type) &&
		like(f.Subjects, l.Event.Subject) &&
		oneOf(f.Reasons, l.Reason) &&
		f.matchStatus(l.LastStatus) &&
		f.matchClass(l) &&
		(f.Since.IsZero() || !l.DiedAt.Before(f.Since)) &&
		(f.Until.IsZero() || l.DiedAt.Before(f.Until)) &&
		(!f.Replayed || l.Generation > 0) &&
		(!f.NotReplayed || l.Generation == 0) &&
		f.matchExpiry(written) &&
		f.matchID(l)
}

func oneOf[T comparable](want []T, have T) bool { return len(want) == 0 || slices.Contains(want, have) }

func like(patterns []string, s string) bool {
	if len(patterns) == 0 {
		return true
	}
	for _, p := range patterns {
		if glob(p, s) {
			return true
		}
	}
	return false
}

// glob matches s against a pattern in which * stands for any text, also none.
func glob(pattern, s string) bool {
	first, rest, ok := strings.Cut(pattern, "*")
	if !ok {
		return pattern == s
	}
	if !strings.HasPrefix(s, first) {
		return false
	}
	s = s[len(first):]
	for {
		part, more, ok := strings.Cut(rest, "*")
		if !ok {
			return strings.HasSuffix(s, rest)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}

func (f *Filter) matchStatus(status int) bool {
	if len(f.Statuses) == 0 {
		return true
	}
	for _, r := range f.Statuses {
		if r.From <= status && status <= r.To {
			return true
		}
	}
	return false
}

func (f *Filter) matchClass(l *schemas.Letter) bool {
	if len(f.ErrorClasses) == 0 {
		return true
	}
	if l.ErrorClass == "" {
		return l.LastStatus != 0 && slices.Contains(f.ErrorClasses, ClassAnswered)
	}
	return slices.Contains(f.ErrorClasses, l.ErrorClass)
}

// matchExpiry: without WrittenBefore the topic keeps letters for ever, and none expires.
func (f *Filter) matchExpiry(written time.Time) bool {
	return f.ExpiresBefore.IsZero() || (!f.WrittenBefore.IsZero() && written.Before(f.WrittenBefore))
}

func (f *Filter) matchID(l *schemas.Letter) bool {
	if len(f.IDs) == 0 {
		return true
	}
	id, message := l.ID(), l.MessageID()
	for _, want := range f.IDs {
		if want == l.Event.ID || want == message || want == id || want == l.Key() {
			return true
		}
	}
	return false
}

// endpoints are the endpoints that all selected letters belong to; nil: there may be
// others. A delivery id or a letter's key names its endpoint.
func (f *Filter) endpoints() []string {
	if len(f.IDs) == 0 {
		return f.Endpoints
	}
	var out []string
	for _, id := range f.IDs {
		of := endpointsOfID(id)
		if of == nil {
			return f.Endpoints // an event or message id: any endpoint
		}
		out = append(out, of...)
	}
	return out
}

// endpointsOfID reads an id both as a delivery id and as a letter's key: an endpoint
// id may look like an origin, and then it can be both.
func endpointsOfID(id string) (out []string) {
	if _, endpoint, err := schemas.ParseDeliveryID(id); err == nil && endpoint != "" {
		out = append(out, endpoint)
	}
	if delivery, _, err := schemas.ParseLetterKey(id); err == nil {
		if _, endpoint, err := schemas.ParseDeliveryID(delivery); err == nil && endpoint != "" {
			out = append(out, endpoint)
		}
	}
	return out
}
