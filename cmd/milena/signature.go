package main

import (
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/publish"
	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
	"github.com/milena-project/milena/signer/verify"
)

// envSecret is where the secret comes from when no file is named. It has no
// MILENA_ prefix because it is the receiver's, and no setting.
const envSecret = "WEBHOOK_SECRET"

func (p *program) signatureCommand() *cobra.Command {
	return group("signature", "Sign and verify requests as Milena and its receivers do",
		"  WEBHOOK_SECRET=whsec_… milena signature sign --data '{}'", p.signatureVerifyCommand(), p.signatureSignCommand())
}

// signatureFlags are common to verify and sign.
type signatureFlags struct {
	secretFile, scheme, data        string
	header, stampHeader, id, prefix string
	headers                         []string
	tolerance                       time.Duration
	url, messageID, contentType     string
	json                            bool
}

func (f *signatureFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.data, "data", "", "the raw body: text, @FILE, or - for standard input")
	mayBeEmpty(fs, "an empty body", "data")
	fs.StringVar(&f.secretFile, "secret-file", "", "`file` with the secret, one a line (default: the environment variable "+envSecret+")")
	fs.StringVar(&f.scheme, "scheme", string(schemas.SchemeStandard), "standard, standard-ed25519, stripe, timestamp-body or body")
	fs.StringVar(&f.header, "signature-header", "", "name of the signature's header (default: the scheme's)")
	fs.StringVar(&f.stampHeader, "timestamp-header", "", "name of the timestamp's header (default: the scheme's)")
	fs.StringVar(&f.id, "id-header", "", "name of the message id's header (default: the scheme's)")
	fs.StringVar(&f.prefix, "signature-prefix", "", "before the signature of scheme body, such as sha256=")
	mayBeEmpty(fs, "none", "signature-prefix")
}

// secrets reads the secrets, which never stand on a command line.
func (p *program) secrets(f *signatureFlags) ([]string, error) {
	text := ""
	for _, e := range p.environ {
		if v, ok := strings.CutPrefix(e, envSecret+"="); ok {
			text = v
		}
	}
	if f.secretFile != "" {
		data, err := os.ReadFile(f.secretFile)
		if err != nil {
			return nil, usage("--secret-file: %w", err)
		}
		text = string(data)
	}
	var list []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	if len(list) == 0 {
		return nil, usage("no secret: give --secret-file FILE, or the environment variable %s", envSecret)
	}
	return list, nil
}

func (p *program) body(cmd *cobra.Command, f *signatureFlags) ([]byte, error) {
	if !cmd.Flags().Changed("data") {
		return nil, usage("--data is missing: the raw body as text, @FILE, or - for standard input")
	}
	body, err := p.readData(f.data)
	if err != nil {
		return nil, usage("--data: %w", err)
	}
	return body, nil
}

func (p *program) signatureVerifyCommand() *cobra.Command {
	f := &signatureFlags{}
	cmd := &cobra.Command{Use: "verify", Args: noArgs,
		Short: "Check a request that was received: exit code 0 good, 1 bad with the reason",
		Example: `  milena signature verify --secret-file secret.txt --data @body.json \
    --header 'webhook-id: msg_…' --header 'webhook-timestamp: 1764500000' --header 'webhook-signature: v1,…'`}
	f.add(cmd)
	cmd.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "a header of the request, `'name: value'` (repeatable)")
	cmd.Flags().DurationVar(&f.tolerance, "tolerance", verify.Tolerance, "how far its timestamp may be from now")
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		secrets, err := p.secrets(f)
		if err != nil {
			return err
		}
		body, err := p.body(cmd, f)
		if err != nil {
			return err
		}
		v, err := verify.New(verify.Config{Secrets: secrets, Scheme: verify.Scheme(f.scheme), Header: f.header,
			TimestampHeader: f.stampHeader, IDHeader: f.id, Prefix: f.prefix, Tolerance: f.tolerance})
		if err != nil {
			return usage("%w", err)
		}
		pairs, err := pairsOf("--header", ":", f.headers)
		if err != nil {
			return err
		}
		headers := http.Header{}
		for _, h := range pairs {
			headers.Add(h.Name, h.Value)
		}
		m, err := v.Verify(headers, body)
		if err != nil {
			p.printf("bad: %s\n", safe(err.Error()))
			return &exit{code: exitFailed}
		}
		p.printf("good")
		if m.ID != "" {
			p.printf("  %s", safe(m.ID))
		}
		if !m.Time.IsZero() {
			p.printf("  signed %s", clock(m.Time))
		}
		p.printf("\n")
		return nil
	})
}

func (p *program) signatureSignCommand() *cobra.Command {
	f := &signatureFlags{}
	cmd := &cobra.Command{Use: "sign", Args: noArgs,
		Short:   "Sign a body and print the curl command that POSTs it so that it verifies",
		Example: "  WEBHOOK_SECRET=whsec_… milena signature sign --data @body.json --url http://localhost:3000/hook | sh"}
	f.add(cmd)
	cmd.Flags().StringVar(&f.url, "url", "http://localhost:3000/hook", "where the curl command POSTs to")
	cmd.Flags().StringVar(&f.messageID, "message-id", "", "the message id (default: one that nobody has)")
	cmd.Flags().StringVar(&f.contentType, "content-type", "application/json", "content type of the body")
	jsonFlag(cmd, &f.json)
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		secrets, err := p.secrets(f)
		if err != nil {
			return err
		}
		body, err := p.body(cmd, f)
		if err != nil {
			return err
		}
		keys := make([]signer.Key, len(secrets))
		for i := range secrets {
			keys[i].Secret = secrets[i]
		}
		s, err := signer.New(schemas.Signing{Schemes: []schemas.Scheme{schemas.Scheme(f.scheme)}, Header: f.header,
			TimestampHeader: f.stampHeader, IDHeader: f.id, Prefix: f.prefix}, keys)
		if err != nil {
			return usage("%w", err)
		}
		if f.messageID == "" {
			f.messageID = schemas.MessageID(publish.Source, publish.NewID())
		}
		headers := http.Header{"Content-Type": {f.contentType}}
		if err := s.Sign(headers, f.messageID, time.Now(), body); err != nil {
			return usage("%w", err)
		}
		if f.json {
			return p.writeJSON(headers)
		}
		return p.writeCurl(f, headers, body)
	})
}
