package registry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

// Bounds of an endpoint. maxRecord leaves room for headers below the 1 MiB of the
// topic and keeps a million endpoints readable.
const (
	maxRecord     = 64 << 10
	maxText       = 1024
	maxURL        = 2048
	maxTenant     = 128
	maxEventTypes = 100
	maxEventType  = 256
	maxHeaders    = 32
	maxHeaderName = 128
	maxHeader     = 4096
	maxMetadata   = 50
	maxInFlight   = 1000
	maxRate       = 1e6
)

// MaxTimeout is the longest total deadline of an attempt that can be registered.
const MaxTimeout = 60 * time.Second

var (
	endpointID  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	headerToken = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$") // RFC 9110 token
	finalStatus = regexp.MustCompile(`^[345]([0-9][0-9]|xx)$`)
)

// ValidID reports whether a text can be an endpoint id: [A-Za-z0-9_-], 1 to 64.
func ValidID(id string) bool { return endpointID.MatchString(id) }

// validate checks what can be configured and brings it into canonical form.
func (a *Admin) validate(ep *Endpoint) error {
	for _, check := range []func(*Endpoint) error{
		checkIdentity, a.checkTarget, checkEventTypes, checkSigning, checkMaxInFlight, checkTimeout, checkRateLimit, a.checkRetry, checkHeaders, checkAuth, checkMetadata,
	} {
		if err := check(ep); err != nil {
			return err
		}
	}
	return nil
}

func checkIdentity(ep *Endpoint) error {
	if !ValidID(ep.ID) {
		return &ValidationError{"id", ep.ID, "use A-Z a-z 0-9 _ -, 1 to 64 of them"}
	}
	if ep.State != schemas.StateEnabled && ep.State != schemas.StateDisabled {
		return &ValidationError{"state", string(ep.State), "use enabled or disabled"}
	}
	for _, f := range []struct {
		name, text string
		max        int
	}{{"tenant", ep.Tenant, maxTenant}, {"description", ep.Description, maxText}, {"reason", ep.Reason, maxText}, {"owner", ep.Owner, maxText}} {
		if err := checkText(f.name, f.text, f.max); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what would break a header, a log line or a terminal.
func checkText(field, s string, most int) error {
	switch {
	case len(s) > most:
		return &ValidationError{field, s[:32] + "…", fmt.Sprintf("it has %d bytes and may have at most %d", len(s), most)}
	case !utf8.ValidString(s):
		return &ValidationError{field, s, "use UTF-8"}
	case strings.ContainsFunc(s, unicode.IsControl):
		return &ValidationError{field, s, "leave out line breaks, NUL and other control characters"}
	}
	return nil
}

// showing puts what may be shown in place of the refused value.
func showing(err error, value string) error {
	if v, ok := errors.AsType[*ValidationError](err); ok {
		v.Value = value
	}
	return err
}

// withoutPassword hides what stands before an @ in a URL, whether it can be parsed or
// not: the refusal of a URL with a password in it is printed and logged.
func withoutPassword(raw string) string {
	at := strings.LastIndexByte(raw, '@')
	if at < 0 {
		return raw
	}
	scheme := ""
	if i := strings.Index(raw[:at], "//"); i >= 0 {
		scheme = raw[:i+2]
	}
	return scheme + "(hidden)" + raw[at:]
}

func (a *Admin) checkTarget(ep *Endpoint) error {
	if err := checkText("url", ep.URL, maxURL); err != nil {
		return showing(err, withoutPassword(ep.URL))
	}
	canonical, err := a.opts.CheckURL(ep.URL)
	if err != nil {
		return &ValidationError{"url", withoutPassword(ep.URL), err.Error()}
	}
	ep.URL = canonical
	return nil
}

// checkEventTypes wants names without white space, or a prefix ending in ".*", or
// "*". Saying nothing would be taken for all by some and for none by others.
func checkEventTypes(ep *Endpoint) error {
	if len(ep.EventTypes) == 0 {
		return &ValidationError{"event_types", "", `name at least one event type, a prefix such as order.*, or * for all`}
	}
	if n := len(ep.EventTypes); n > maxEventTypes {
		return &ValidationError{"event_types", fmt.Sprint(n), fmt.Sprintf("give at most %d; a prefix such as order.* stands for many", maxEventTypes)}
	}
	var types []string
	for i, p := range ep.EventTypes {
		field := fmt.Sprintf("event_types[%d]", i)
		if err := checkText(field, p, maxEventType); err != nil {
			return err
		}
		name := strings.TrimSuffix(p, ".*")
		switch {
		case p == "*":
		case name == "" || strings.Contains(name, "*"):
			return &ValidationError{field, p, `a star stands alone or at the end after a full stop, as in order.*`}
		case strings.ContainsFunc(name, unicode.IsSpace):
			return &ValidationError{field, p, "leave out white space"}
		case slices.Contains(strings.Split(name, "."), ""):
			return &ValidationError{field, p, "leave out full stops at the start, at the end and one after the other"}
		}
		if !slices.Contains(types, p) {
			types = append(types, p)
		}
	}
	ep.EventTypes = types
	return nil
}

func checkSigning(ep *Endpoint) error {
	if _, err := signer.HeaderNames(ep.Signing); err != nil {
		return &ValidationError{"signing", signingText(ep.Signing), err.Error()}
	}
	return nil
}

// signingText is what was said of a signing configuration, on one line.
func signingText(s schemas.Signing) string {
	said := make([]string, 0, len(s.Schemes)+5)
	for _, scheme := range s.Schemes {
		said = append(said, string(scheme))
	}
	said = append(said, s.Header, s.TimestampHeader, s.IDHeader, s.Prefix, s.Rotation)
	return strings.Join(slices.DeleteFunc(said, func(t string) bool { return t == "" }), " ")
}

func checkMaxInFlight(ep *Endpoint) error {
	if n := ep.MaxInFlight; n < 0 || n > maxInFlight {
		return &ValidationError{"max_in_flight", fmt.Sprint(n), fmt.Sprintf("use 1 to %d (0 or left out: the default, 10)", maxInFlight)}
	}
	return nil
}

func checkTimeout(ep *Endpoint) error {
	if t := time.Duration(ep.Timeout); t < 0 || t > MaxTimeout {
		return &ValidationError{"timeout", t.String(), fmt.Sprintf("use more than 0 and at most %s (left out: the default, 15s)", MaxTimeout)}
	}
	return nil
}

func checkRateLimit(ep *Endpoint) error {
	if ep.RateLimit == nil {
		return nil
	}
	if err := checkRate(ep.RateLimit); err != nil {
		return err
	}
	return checkBurst(ep.RateLimit)
}

func checkRate(r *schemas.RateLimit) error {
	if math.IsNaN(r.Rate) || r.Rate <= 0 || r.Rate > maxRate {
		return &ValidationError{"rate_limit.rate", fmt.Sprint(r.Rate), "use requests a second, more than 0 and at most 1000000; leave rate_limit out for none"}
	}
	return nil
}

func checkBurst(r *schemas.RateLimit) error {
	if r.Burst < 0 || r.Burst > maxRate {
		return &ValidationError{"rate_limit.burst", fmt.Sprint(r.Burst), "use 1 to 1000000 (0 or left out: the rate, rounded up)"}
	}
	return nil
}

func checkMaxAge(ep *Endpoint, longest time.Duration) error {
	if age := time.Duration(ep.Retry.MaxAge); age < 0 || age > longest {
		return &ValidationError{"retry.max_age", age.String(), fmt.Sprintf("use more than 0 and at most %s, which the retention of the topics is made for (setting retry.max_age)", longest)}
	}
	return nil
}

func (a *Admin) checkRetry(ep *Endpoint) error {
	r := ep.Retry
	if !slices.ContainsFunc(retrytopics.Presets(), func(p retrytopics.Preset) bool { return r.Preset == "" || r.Preset == p.Name }) {
		return &ValidationError{"retry.preset", r.Preset, "use standard, proofledger, fast or none"}
	}
	age, longest := time.Duration(r.MaxAge), cmp.Or(a.opts.MaxAge, schemas.DefaultMaxAge)
	if err := checkMaxAge(ep, longest); err != nil {
		return err
	}
	if age == 0 {
		age = longest
	}
	if n := len(r.Schedule); n > retrytopics.MostSteps {
		return &ValidationError{"retry.schedule", fmt.Sprint(n), fmt.Sprintf("give at most %d delays", retrytopics.MostSteps)}
	}
	var total, before time.Duration
	for i, d := range r.Schedule {
		delay := time.Duration(d)
		field := fmt.Sprintf("retry.schedule[%d]", i)
		switch {
		case delay <= 0:
			return &ValidationError{field, delay.String(), "a delay is more than 0"}
		case delay < before:
			return &ValidationError{field, delay.String(), "delays do not get shorter from one attempt to the next"}
		case delay > age-total:
			return &ValidationError{field, delay.String(), fmt.Sprintf("all delays together may be at most %s (retry.max_age), after which a delivery expires", age)}
		}
		total, before = total+delay, delay
	}
	for i, s := range r.FinalStatuses {
		if i >= maxEventTypes || !finalStatus.MatchString(s) {
			return &ValidationError{fmt.Sprintf("retry.final_statuses[%d]", i), s, "use statuses from 300 to 599, or 3xx, 4xx, 5xx"}
		}
	}
	// Its owner has the last word: what it refuses would be sent by the default policy.
	if _, err := retrytopics.Compile(r); err != nil {
		return &ValidationError{"retry", "", err.Error()}
	}
	return nil
}

func checkMetadata(ep *Endpoint) error {
	if n := len(ep.Metadata); n > maxMetadata {
		return &ValidationError{"metadata", fmt.Sprint(n), fmt.Sprintf("give at most %d", maxMetadata)}
	}
	for i, m := range ep.Metadata {
		field := fmt.Sprintf("metadata[%d]", i)
		if m.Name == "" {
			return &ValidationError{field + ".name", "", "give it a name"}
		}
		if err := checkText(field+".name", m.Name, maxHeaderName); err != nil {
			return err
		}
		if err := checkText(field+".value", m.Value, maxText); err != nil {
			return err
		}
	}
	return nil
}

// Headers that an endpoint cannot set. They frame the request or belong to the
// connection, change what net/http does (Expect, Idempotency-Key: its replay rule,
// Accept-Encoding: its decoding), or are Milena's own to say.
var (
	reservedHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "Te",
		"Trailer", "Expect", "Idempotency-Key", "X-Idempotency-Key", "Accept-Encoding", "Content-Type", "Content-Encoding",
		"User-Agent", "Traceparent", "Tracestate"}
	reservedPrefixes = []string{"Webhook-", "Ce-", "Milena-", "Proxy-"}
)

func reservedHeader(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	if slices.Contains(reservedHeaders, name) {
		return true
	}
	return slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func checkHeaders(ep *Endpoint) error {
	if n := len(ep.Headers) + len(ep.ForwardHeaders); n > maxHeaders {
		return &ValidationError{"headers", fmt.Sprint(n), fmt.Sprintf("give at most %d, those of forward_headers included", maxHeaders)}
	}
	signature, err := signer.HeaderNames(ep.Signing)
	if err != nil {
		return &ValidationError{"signing", "", err.Error()}
	}
	taken := make(map[string]bool)
	for _, name := range signature {
		taken[textproto.CanonicalMIMEHeaderKey(name)] = true
	}
	if ep.Auth != nil {
		taken["Authorization"] = true
	}
	name := func(field, name string) error {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case len(name) > maxHeaderName || !headerToken.MatchString(name):
			return &ValidationError{field, name, fmt.Sprintf("use a header name of letters, digits and hyphens, at most %d", maxHeaderName)}
		case reservedHeader(name):
			return &ValidationError{field, name, "this header is set by Milena or belongs to the connection; leave it out"}
		case taken[canonical]:
			return &ValidationError{field, name, "this header is given twice, or is set by signing or auth"}
		}
		taken[canonical] = true
		return nil
	}
	for i, h := range ep.Headers {
		if err := name(fmt.Sprintf("headers[%d].name", i), h.Name); err != nil {
			return err
		}
		if err := checkText(fmt.Sprintf("headers[%d].value", i), h.Value, maxHeader); err != nil {
			return showing(err, "(hidden)") // it may be a key of the receiver's
		}
	}
	for i, h := range ep.ForwardHeaders {
		if err := name(fmt.Sprintf("forward_headers[%d]", i), h); err != nil {
			return err
		}
	}
	return nil
}

// checkAuth may see passwords in plain text or sealed, and never repeats them.
func checkAuth(ep *Endpoint) error {
	if ep.Auth == nil {
		return nil
	}
	basic, bearer := ep.Auth.Basic, ep.Auth.Bearer
	secret, field := bearer, "auth.bearer"
	switch {
	case basic == nil && bearer == "":
		return &ValidationError{"auth", "", "give basic or bearer, or leave auth out"}
	case basic != nil && bearer != "":
		return &ValidationError{"auth", "(hidden)", "give basic or bearer, not both"}
	case basic != nil:
		if basic.User == "" || strings.Contains(basic.User, ":") {
			return &ValidationError{"auth.basic.user", basic.User, "give a name without a colon"}
		}
		if err := checkText("auth.basic.user", basic.User, maxText); err != nil {
			return err
		}
		secret, field = basic.Password, "auth.basic.password"
	}
	if err := checkText(field, secret, maxHeader); err != nil {
		return &ValidationError{field, "(hidden)", "use UTF-8 without control characters, at most 4096 bytes"}
	}
	return nil
}
