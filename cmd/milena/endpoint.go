package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/health"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

func (p *program) endpointCommand() *cobra.Command {
	return group("endpoint", "Create, look at and change endpoints",
		"  milena endpoint create --url https://example.com/hook --event-types 'order.*'\n  milena endpoint list",
		p.endpointCreateCommand(), p.endpointListCommand(), p.endpointGetCommand(), p.endpointUpdateCommand(), p.endpointDeleteCommand(),
		p.endpointEnableCommand(), p.endpointDisableCommand(), p.endpointRotateCommand(), p.endpointRekeyCommand(), p.endpointTestCommand(), p.endpointExplainCommand())
}

// endpointVerb is a command on endpoints: settings, --timeout and --json.
func (p *program) endpointVerb(cmd *cobra.Command, run func(e *endpointRun, args []string) error) *cobra.Command {
	e := &endpointRun{program: p}
	jsonFlag(cmd, &e.json)
	timeoutFlag(cmd, &e.timeout)
	settings(cmd)
	return p.verb(cmd, func(cmd *cobra.Command, args []string) error {
		e.cmd = cmd
		return run(e, args)
	})
}

// endpointRun is one run of a command on endpoints.
type endpointRun struct {
	*program
	cmd     *cobra.Command
	json    bool
	timeout time.Duration

	opened *session
}

// open is the run's one session: a second would say again which file it reads.
func (e *endpointRun) open() (s *session, err error) {
	if e.opened == nil {
		e.opened, err = e.connect(e.cmd, e.timeout)
	}
	return e.opened, err
}

// with runs work with an Admin, within --timeout. needKeys is for work that makes
// or keeps secrets.
func (e *endpointRun) with(needKeys bool, work func(ctx context.Context, a *registry.Admin) error) error {
	s, err := e.open()
	if err != nil {
		return err
	}
	keys, err := ring(s.Loaded)
	if needKeys && err == nil {
		keys, err = needRing(s.Loaded)
	}
	if err != nil {
		return err
	}
	a, err := s.admin(keys)
	if err != nil {
		return err
	}
	defer a.Close()
	return s.within(e.cmd.Context(), func(ctx context.Context) error { return work(ctx, a) })
}

// endpointView is an endpoint as it is shown: nothing sealed. Its state is the
// registered one; Now is what it is in.
type endpointView struct {
	schemas.Endpoint
	Now     *health.Status `json:"now,omitempty"`
	Secrets []secretView   `json:"secrets"`
	Auth    *authView      `json:"auth,omitempty"`

	ClientCertificate *certificateView `json:"client_certificate,omitempty"`
}

type certificateView struct {
	Subject   string    `json:"subject"`
	ExpiresAt time.Time `json:"expires_at"`
}

func viewCertificate(c *schemas.ClientCertificate) *certificateView {
	block, _ := pem.Decode([]byte(c.Certificate))
	if block == nil {
		return &certificateView{Subject: "unreadable"}
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return &certificateView{Subject: "unreadable"}
	}
	return &certificateView{leaf.Subject.String(), leaf.NotAfter.UTC()}
}

type secretView struct {
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	PublicKey string    `json:"public_key,omitempty"`
}

type authView struct {
	Basic  string `json:"basic_user,omitempty"`
	Bearer bool   `json:"bearer,omitempty"`
}

func view(ep *schemas.Endpoint) endpointView {
	v := endpointView{Endpoint: *ep}
	for _, s := range ep.Secrets {
		v.Secrets = append(v.Secrets, secretView{CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt, PublicKey: s.PublicKey})
	}
	if ep.Auth != nil {
		v.Auth = &authView{Bearer: ep.Auth.Bearer != ""}
		if ep.Auth.Basic != nil {
			v.Auth.Basic = ep.Auth.Basic.User
		}
	}
	if ep.ClientCertificate != nil {
		v.ClientCertificate = viewCertificate(ep.ClientCertificate)
	}
	return v
}

// changed writes what an endpoint is after a change, with new secrets.
func (e *endpointRun) changed(what string, res registry.Result) error {
	if e.json {
		line := struct {
			Endpoint endpointView         `json:"endpoint"`
			Secrets  []registry.NewSecret `json:"new_secrets,omitempty"`
		}{view(res.Endpoint), res.Secrets}
		return e.writeJSON(line)
	}
	e.printf("endpoint %s %s (version %d)\n", res.Endpoint.ID, what, res.Endpoint.Version)
	for _, s := range res.Secrets {
		e.printf("secret  %s\n", s.Secret)
		if s.PublicKey != "" {
			e.printf("public  %s\n", s.PublicKey)
		}
	}
	if len(res.Secrets) > 0 {
		e.notef("The secret is shown this once and cannot be had again: give it to the receiver now.")
	}
	return nil
}

// show writes one endpoint for people; now is what it is in.
func (e *endpointRun) show(ep *schemas.Endpoint, now string) {
	row := func(name, value string) {
		if value != "" {
			e.printf("%-15s %s\n", name, safe(value))
		}
	}
	row("id", ep.ID)
	row("tenant", ep.Tenant)
	row("url", ep.URL)
	row("state", strings.TrimSpace(now+" "+ep.Reason))
	row("event types", strings.Join(ep.EventTypes, " "))
	row("description", ep.Description)
	row("signing", signingText(ep.Signing))
	for _, s := range ep.Secrets {
		text := "made " + clock(s.CreatedAt)
		if !s.ExpiresAt.IsZero() {
			text += ", signs until " + clock(s.ExpiresAt)
		}
		row("secret", strings.TrimSpace(text+" "+s.PublicKey))
	}
	row("limits", limitsText(ep))
	row("retry", retryText(ep.Retry))
	for _, h := range ep.Headers {
		row("header", h.Name+": "+h.Value)
	}
	row("forwards", strings.Join(ep.ForwardHeaders, " "))
	if ep.ClientCertificate != nil {
		c := viewCertificate(ep.ClientCertificate)
		row("certificate", c.Subject+", until "+clock(c.ExpiresAt))
	}
	row("owner", ep.Owner)
	for _, m := range ep.Metadata {
		row("metadata", m.Name+"="+m.Value)
	}
	row("changed", clock(ep.UpdatedAt)+", version "+itoa(ep.Version)+", created "+clock(ep.CreatedAt))
}
