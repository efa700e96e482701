package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

func (p *program) dlqShowCommand() *cobra.Command {
	var curl bool
	f := &dlqFlags{}
	cmd := &cobra.Command{Use: "show ID", Args: oneArg("ID"),
		Short: "Show one dead letter: payload, headers and every death it has died",
		Long: `Show one dead letter: payload, headers and every death it has died. ID is a delivery id, a message id
(webhook-id), or an event id. Of a delivery id also what was replayed or discarded is shown, as long as
the topic has it. JSON is indented, and nothing in it is reordered or rounded.`,
		Example: "  milena dlq show webhooks.deliveries-3fa94c1e-7-1042.shop-42\n  milena dlq show webhooks.deliveries-3fa94c1e-7-1042.shop-42 --curl | sh"}
	cmd.Flags().BoolVar(&curl, "curl", false, "print a curl command that POSTs the last one, signed if the key ring is configured")
	jsonFlag(cmd, &f.json)
	return p.dlqVerb(cmd, f, func(r *dlqRun, args []string) error {
		wait := r.watch()
		deaths, err := r.store.Show(cmd.Context(), args[0])
		wait.end()
		if err != nil {
			return err
		}
		if curl {
			return r.showCurl(&deaths[len(deaths)-1])
		}
		if !f.json { // before the reasons, so that a long one does not move them off the screen
			r.showPayload(&deaths[len(deaths)-1].Letter)
		}
		for i := range deaths {
			if f.json {
				err = r.writeJSON(deathJSON(&deaths[i]))
			} else {
				r.showDeath(&deaths[i])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func deathJSON(d *dlq.Death) any {
	type header struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Base64 []byte `json:"base64,omitempty"` // where it is no UTF-8, which JSON cannot hold
	}
	headers := make([]header, len(d.Extra))
	for i, h := range d.Extra {
		headers[i] = header{Key: h.Key, Value: string(h.Value)}
		if !utf8.Valid(h.Value) {
			headers[i] = header{Key: h.Key, Base64: h.Value}
		}
	}
	return struct {
		dlq.Row
		Settled string    `json:"settled,omitempty"`
		By      string    `json:"settled_by,omitempty"`
		At      time.Time `json:"settled_at,omitzero"`
		Headers []header  `json:"headers,omitempty"` // the producer's own
		Value   []byte    `json:"payload_base64"`
	}{d.Row(), d.Settled, d.Run, d.At, headers, d.Payload}
}

func (r *dlqRun) showDeath(d *dlq.Death) {
	line := func(name, value string) {
		if value != "" {
			r.printf("  %-14s %s\n", name, safe(value))
		}
	}
	state := "open"
	if d.Settled != "" {
		state = d.Settled + " on " + clock(d.At) + " by " + d.Run
	}
	r.printf("\n%s\n", safe(d.ID()))
	line("death", number(int64(d.Generation+1))+", "+state)
	line("reason", string(d.Reason))
	line("last answer", answerOf(d.LastStatus, d.ErrorClass))
	line("error", d.Error)
	line("attempts", number(int64(d.Attempt)))
	line("enqueued", timeText(d.Enqueued))
	line("first attempt", timeText(d.FirstAttempt))
	line("died", timeText(d.DiedAt))
	line("endpoint", d.EndpointID)
	line("tenant", d.Event.Tenant)
	line("message id", d.MessageID())
	line("event id", d.Event.ID)
	line("source", d.Event.Source)
	line("type", d.Event.Type)
	line("subject", d.Event.Subject)
	line("event time", d.Event.Time)
	line("content type", d.Event.ContentType)
	line("resend of", d.ResendOf)
	line("run", d.Entry.Letter.Run)
	for _, h := range d.Extra {
		line("header", h.Key+": "+string(h.Value))
	}
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return clock(t)
}

func (r *dlqRun) showPayload(l *schemas.Letter) {
	text, isJSON := dlq.Pretty(l.Payload)
	switch {
	case l.Mark == schemas.PayloadOmitted:
		r.printf("the payload was left out: the broker refused the letter with it\n")
	case l.Mark == schemas.PayloadNull:
		r.printf("the record's value was null\n")
	case len(l.Payload) == 0:
		r.printf("the payload is empty\n")
	case isJSON:
		r.printf("payload, %s:\n%s\n", sizeText(int64(len(l.Payload))), safeLines(text))
	case utf8.Valid(l.Payload):
		r.printf("payload, %s:\n%s\n", sizeText(int64(len(l.Payload))), safeLines(string(l.Payload)))
	default:
		r.printf("payload, %s in base64:\n%s\n", sizeText(int64(len(l.Payload))), base64.StdEncoding.EncodeToString(l.Payload))
	}
}

// safeLines is safe for each line.
func safeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = schemas.CleanText(strings.ReplaceAll(line, "\t", "  "), len(line)*3+8)
	}
	return strings.Join(lines, "\n")
}

func (r *dlqRun) showCurl(d *dlq.Death) error {
	if d.Mark != "" {
		return fmt.Errorf("there is nothing to send: the payload of %s is %s", safe(d.ID()), safe(string(d.Mark)))
	}
	ep, err := r.store.Endpoint(r.cmd.Context(), d.EndpointID)
	if err != nil {
		return err
	}
	if ep == nil || ep.URL == "" {
		return fmt.Errorf("endpoint %s is not registered, so there is no URL to send to", d.EndpointID)
	}
	keys, err := ring(r.session.Loaded)
	if err != nil {
		return err
	}
	headers, whole, err := dlq.RequestHeaders(&d.Letter, ep, keys, "Milena/"+readVersion().Version, time.Now())
	if err != nil {
		return err
	}
	if !whole {
		r.notef("milena: without a key ring (MILENA_KEYRING) the request has no signature and no authorization")
	}
	// By base64, so that any bytes come out as they are.
	r.printf("printf %%s %s | base64 -d | %s \\\n  --data-binary @-\n", quote(base64.StdEncoding.EncodeToString(d.Payload)), curlOf(ep.URL, headers))
	return nil
}
