package logging

import (
	"net/url"
	"strings"
)

// WithoutQuery is an event's source without what may be a secret in it, for logs and
// traces: a source is a URI, and some have a token behind their question mark, or a user
// before their host.
func WithoutQuery(source string) string {
	u, err := url.Parse(source)
	if err != nil { // no URI: what looks like those parts goes
		source = source[strings.LastIndexByte(source, '@')+1:]
		if end := strings.IndexAny(source, "?#"); end >= 0 {
			source = source[:end]
		}
		return source
	}
	if u.RawQuery == "" && u.User == nil && u.Fragment == "" {
		return source
	}
	u.RawQuery, u.User, u.Fragment, u.RawFragment = "", nil, "", ""
	return u.String()
}
