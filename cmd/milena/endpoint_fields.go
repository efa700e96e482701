package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/milena-project/milena/schemas"
)

// fields are the flags of create and update that set what can be configured.
type fields struct {
	url, description, owner        string
	eventTypes                     []string
	schemes                        []string
	header, timestampHeader        string
	idHeader, prefix, rotation     string
	maxInFlight, burst             int
	rate                           float64
	requestTimeout, maxAge         time.Duration
	preset                         string
	schedule                       []time.Duration
	finalStatuses, forwardHeaders  []string
	headers, metadata              []string
	noCE                           bool
	basicUser, passwordFile, token string
	clientCert, clientKey          string

	flags *pflag.FlagSet
}

func (f *fields) add(fs *pflag.FlagSet) {
	f.flags = fs
	fs.StringVar(&f.url, "url", "", "where to POST, http(s)")
	fs.StringSliceVar(&f.eventTypes, "event-types", []string{"*"}, "what it subscribes to: a type, a prefix such as order.*, or *")
	fs.StringVar(&f.description, "description", "", "what it is for")
	fs.StringVar(&f.owner, "owner", "", "whom to tell when it fails")
	fs.StringArrayVar(&f.metadata, "metadata", nil, "`name=value` to keep with it (repeatable)")
	fs.StringSliceVar(&f.schemes, "scheme", nil, "signature: standard, standard-ed25519, stripe, timestamp-body, body; several at once for a migration")
	fs.StringVar(&f.header, "signature-header", "", "name of the signature's header, where the scheme lets it be chosen")
	fs.StringVar(&f.timestampHeader, "timestamp-header", "", "name of the timestamp's header")
	fs.StringVar(&f.idHeader, "id-header", "", "name of the message id's header")
	fs.StringVar(&f.prefix, "signature-prefix", "", "before the signature of scheme body, such as sha256=")
	fs.StringVar(&f.rotation, "rotation", "", "which secrets sign after a rotation: both, old-until-expiry, new-at-once")
	fs.IntVar(&f.maxInFlight, "max-in-flight", 0, "requests at once (default 10)")
	fs.Float64Var(&f.rate, "rate", 0, "requests a second; 0: no limit")
	fs.IntVar(&f.burst, "burst", 0, "how many may go at once within the rate (default: the rate)")
	fs.DurationVar(&f.requestTimeout, "request-timeout", 0, "for one attempt, at most 60s (default 15s)")
	fs.StringVar(&f.preset, "retry", "", "retry preset: standard, proofledger, fast, none")
	fs.DurationSliceVar(&f.schedule, "schedule", nil, "`delays` between attempts in place of the preset's, such as 2s,5s,10s")
	fs.Lookup("schedule").DefValue = "" // pflag would call it [] and show that
	fs.StringSliceVar(&f.finalStatuses, "final-statuses", nil, "statuses that are not tried again, such as 404,4xx")
	fs.DurationVar(&f.maxAge, "max-age", 0, "a delivery older than this is not tried again (default 96h)")
	fs.StringArrayVar(&f.headers, "header", nil, "`'name: value'` to send with every request (repeatable)")
	fs.StringSliceVar(&f.forwardHeaders, "forward-header", nil, "record header to send on")
	fs.BoolVar(&f.noCE, "no-ce-headers", false, "leave out ce-id, ce-type and so on")
	fs.StringVar(&f.basicUser, "basic-user", "", "user of basic authentication; its password comes from --basic-password-file")
	fs.StringVar(&f.passwordFile, "basic-password-file", "", "`file` with the password of basic authentication")
	fs.StringVar(&f.token, "bearer-file", "", "`file` with the token of bearer authentication")
	fs.StringVar(&f.clientCert, "client-cert", "", "`file` with the PEM certificate to present in TLS, its chain behind it; empty: none")
	fs.StringVar(&f.clientKey, "client-key", "", "`file` with its PEM key, unencrypted; it is sealed in the registry")
	mayBeEmpty(fs, "none", "description", "owner", "signature-prefix", "final-statuses", "forward-header", "client-cert", "client-key")
	mayBeEmpty(fs, "that of the scheme", "signature-header", "timestamp-header", "id-header")
}

// withoutDefaults is for update, where what is not given stays as it is.
func withoutDefaults(fs *pflag.FlagSet) {
	fs.VisitAll(func(flag *pflag.Flag) { flag.Usage, _, _ = strings.Cut(flag.Usage, " (default") })
	fs.Lookup("event-types").DefValue = "[]" // pflag shows no empty list
}

// given reports whether a flag of a field was given.
func (f *fields) given() bool {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&fields{}).add(own)
	given := false
	f.flags.Visit(func(flag *pflag.Flag) { given = given || own.Lookup(flag.Name) != nil })
	return given
}

// apply sets the fields whose flags were given.
func (f *fields) apply(ep *schemas.Endpoint) error {
	if f.flags.Changed("retry") && f.flags.Changed("schedule") {
		return usage("--schedule stands in place of the preset's: give one of --retry and --schedule")
	}
	f.applySigning(&ep.Signing)
	f.applyRetry(&ep.Retry)
	f.applyLimits(ep)
	set(f, "url", &ep.URL, f.url)
	set(f, "event-types", &ep.EventTypes, f.eventTypes)
	set(f, "description", &ep.Description, f.description)
	set(f, "owner", &ep.Owner, f.owner)
	set(f, "forward-header", &ep.ForwardHeaders, f.forwardHeaders)
	set(f, "no-ce-headers", &ep.NoCEHeaders, f.noCE)
	if f.flags.Changed("metadata") {
		pairs, err := pairsOf("--metadata", "=", f.metadata)
		if err != nil {
			return err
		}
		ep.Metadata = pairs
	}
	if f.flags.Changed("header") {
		pairs, err := pairsOf("--header", ":", f.headers)
		if err != nil {
			return err
		}
		ep.Headers = pairs
	}
	if err := f.applyCertificate(ep); err != nil {
		return err
	}
	return f.applyAuth(ep)
}

func set[T any](f *fields, flag string, field *T, value T) {
	if f.flags.Changed(flag) {
		*field = value
	}
}

func (f *fields) applySigning(s *schemas.Signing) {
	if f.flags.Changed("scheme") {
		s.Schemes = nil
		for _, name := range f.schemes {
			s.Schemes = append(s.Schemes, schemas.Scheme(name))
		}
	}
	set(f, "signature-header", &s.Header, f.header)
	set(f, "timestamp-header", &s.TimestampHeader, f.timestampHeader)
	set(f, "id-header", &s.IDHeader, f.idHeader)
	set(f, "signature-prefix", &s.Prefix, f.prefix)
	set(f, "rotation", &s.Rotation, f.rotation)
}

func (f *fields) applyRetry(r *schemas.Retry) {
	if f.flags.Changed("retry") {
		r.Preset, r.Schedule = f.preset, nil // a schedule that was left would win
	}
	set(f, "final-statuses", &r.FinalStatuses, f.finalStatuses)
	set(f, "max-age", &r.MaxAge, schemas.Duration(f.maxAge))
	if f.flags.Changed("schedule") {
		r.Schedule = nil
		for _, d := range f.schedule {
			r.Schedule = append(r.Schedule, schemas.Duration(d))
		}
	}
}

func (f *fields) applyLimits(ep *schemas.Endpoint) {
	set(f, "max-in-flight", &ep.MaxInFlight, f.maxInFlight)
	set(f, "request-timeout", &ep.Timeout, schemas.Duration(f.requestTimeout))
	if !f.flags.Changed("rate") && !f.flags.Changed("burst") {
		return
	}
	limit := schemas.RateLimit{}
	if ep.RateLimit != nil {
		limit = *ep.RateLimit
	}
	set(f, "rate", &limit.Rate, f.rate)
	set(f, "burst", &limit.Burst, f.burst)
	if limit.Burst == 0 {
		limit.Burst = limit.Size()
	}
	ep.RateLimit = &limit
	if f.flags.Changed("rate") && f.rate == 0 {
		ep.RateLimit = nil
	}
}

func (f *fields) applyAuth(ep *schemas.Endpoint) error {
	if f.flags.Changed("bearer-file") {
		token, err := secretFile("--bearer-file", f.token)
		if err != nil {
			return err
		}
		ep.Auth = &schemas.Auth{Bearer: token}
	}
	if !f.flags.Changed("basic-user") {
		if f.passwordFile != "" {
			return usage("--basic-password-file needs --basic-user")
		}
		return nil
	}
	if f.flags.Changed("bearer-file") || f.passwordFile == "" {
		return usage("--basic-user needs --basic-password-file and excludes --bearer-file")
	}
	password, err := secretFile("--basic-password-file", f.passwordFile)
	ep.Auth = &schemas.Auth{Basic: &schemas.BasicAuth{User: f.basicUser, Password: password}}
	return err
}

func (f *fields) applyCertificate(ep *schemas.Endpoint) error {
	if !f.flags.Changed("client-cert") && !f.flags.Changed("client-key") {
		return nil
	}
	if f.flags.Changed("client-cert") && f.clientCert == "" && f.clientKey == "" {
		ep.ClientCertificate = nil
		return nil
	}
	if f.clientCert == "" || f.clientKey == "" {
		return usage("--client-cert and --client-key belong together")
	}
	cert, err := os.ReadFile(f.clientCert)
	if err != nil {
		return usage("--client-cert: %w", err)
	}
	key, err := os.ReadFile(f.clientKey)
	if err != nil {
		return usage("--client-key: %w", err)
	}
	ep.ClientCertificate = &schemas.ClientCertificate{Certificate: string(cert), Key: string(key)}
	return nil
}
