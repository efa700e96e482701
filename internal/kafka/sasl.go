package kafka

import (
	"context"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The values of SASLConfig.Mechanism, spelled as Kafka spells them.
const (
	SASLPlain       = "PLAIN"
	SASLScramSHA256 = "SCRAM-SHA-256"
	SASLScramSHA512 = "SCRAM-SHA-512"
	SASLOAuthBearer = "OAUTHBEARER"
	SASLAWSMSKIAM   = "AWS_MSK_IAM"
)

// SASLConfig says who we are. Secrets in files are read at each authentication,
// so a rotated password is used by the next connection.
type SASLConfig struct {
	Mechanism    string // kafka.sasl.mechanism; empty: no SASL
	User         string // kafka.sasl.user; PLAIN and SCRAM
	Password     string // kafka.sasl.password, or
	PasswordFile string // kafka.sasl.password_file; one newline at its end is not part of it
	OAuth        OAuthConfig

	// IAM makes the mechanism of AWS_MSK_IAM. It is a seam so that only a binary
	// that imports package mskiam links the AWS SDK: set it to mskiam.Mechanism.
	IAM func() (sasl.Mechanism, error)
}

// mechanism is nil when there is no SASL.
func (c SASLConfig) mechanism() (sasl.Mechanism, error) {
	const key = "kafka.sasl.mechanism"
	switch strings.ToUpper(strings.TrimSpace(c.Mechanism)) {
	case "":
		if c.User != "" || c.Password != "" || c.PasswordFile != "" {
			return nil, &Error{Key: key, Why: "is not set, but a user or password is", Remedy: "give " + mechanisms}
		}
		return nil, nil
	case SASLPlain:
		if err := c.checkPassword(); err != nil {
			return nil, err
		}
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			p, err := c.password()
			return plain.Auth{User: c.User, Pass: p}, err
		}), nil
	case SASLScramSHA256:
		return c.scram(scram.Sha256)
	case SASLScramSHA512:
		return c.scram(scram.Sha512)
	case SASLOAuthBearer:
		src, err := newTokenSource(c.OAuth)
		if err != nil {
			return nil, err
		}
		return oauth.Oauth(src.auth), nil
	case SASLAWSMSKIAM:
		if c.IAM == nil {
			return nil, &Error{Key: key, Value: c.Mechanism, Why: "is not built into this program",
				Remedy: "set SASLConfig.IAM to mskiam.Mechanism"}
		}
		return c.IAM()
	default:
		return nil, &Error{Key: key, Value: c.Mechanism, Why: "is not known", Remedy: "give " + mechanisms}
	}
}

const mechanisms = SASLPlain + ", " + SASLScramSHA256 + ", " + SASLScramSHA512 + ", " + SASLOAuthBearer + " or " + SASLAWSMSKIAM

func (c SASLConfig) scram(with func(func(context.Context) (scram.Auth, error)) sasl.Mechanism) (sasl.Mechanism, error) {
	if err := c.checkPassword(); err != nil {
		return nil, err
	}
	return with(func(context.Context) (scram.Auth, error) {
		p, err := c.password()
		return scram.Auth{User: c.User, Pass: p}, err
	}), nil
}

func (c SASLConfig) checkPassword() error {
	if c.User == "" {
		return &Error{Key: "kafka.sasl.user", Why: "is not set", Remedy: c.Mechanism + " needs it"}
	}
	_, err := c.password()
	return err
}

func (c SASLConfig) password() (string, error) {
	return secretOf("kafka.sasl.password", c.Password, c.PasswordFile)
}

// secretOf is a secret given as text or by a file; exactly one of them.
func secretOf(key, text, file string) (string, error) {
	switch {
	case text != "" && file != "":
		return "", &Error{Key: key, Why: "is set, and " + key + "_file too", Remedy: "set one of them"}
	case text != "":
		return text, nil
	case file == "":
		return "", &Error{Key: key, Why: "is not set", Remedy: "set " + key + "_file to a file that holds it, or its environment variable"}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", &Error{Key: key + "_file", Value: file, Why: "cannot be read", Err: err, Remedy: "give a file that holds the secret and nothing else"}
	}
	s := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if s == "" {
		return "", &Error{Key: key + "_file", Value: file, Why: "is empty", Remedy: "give a file that holds the secret and nothing else"}
	}
	return s, nil
}
