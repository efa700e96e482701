package signer

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Prefixes of secrets and keys, from the Standard Webhooks specification.
const (
	PrefixSecret  = "whsec_" // symmetric secret
	PrefixPrivate = "whsk_"  // ed25519 private key
	PrefixPublic  = "whpk_"  // ed25519 public key
)

// Bounds of a symmetric secret in bytes, from the Standard Webhooks specification.
const (
	MinSecretBytes     = 24
	MaxSecretBytes     = 64
	DefaultSecretBytes = 32
)

// ErrSecret is wrapped by every error about a secret. Their texts never hold the
// secret, or a part of it.
var ErrSecret = errors.New("unusable signing secret")

// Kind is what a secret can be used for.
type Kind int

const (
	KindHMAC    Kind = iota + 1 // whsec_
	KindEd25519                 // whsk_
)

// Secret is a parsed secret.
type Secret struct {
	Kind    Kind
	Bytes   []byte             // KindHMAC: what the base64 stands for
	Private ed25519.PrivateKey // KindEd25519
}

// PublicKey is the whpk_ form of an ed25519 secret's public half; empty for others.
func (s Secret) PublicKey() string {
	if s.Kind != KindEd25519 {
		return ""
	}
	return PrefixPublic + base64.StdEncoding.EncodeToString(s.Private.Public().(ed25519.PublicKey))
}

// ParseSecret reads whsec_<base64 of 24 to 64 bytes>, or whsk_<base64 of an ed25519
// private key: 64 bytes, or its 32-byte seed>. Errors wrap ErrSecret and say what
// is wrong without repeating the text.
func ParseSecret(text string) (Secret, error) {
	switch {
	case strings.HasPrefix(text, PrefixSecret):
		raw, err := base64.StdEncoding.DecodeString(text[len(PrefixSecret):])
		if err != nil {
			return Secret{}, fmt.Errorf("%w: what follows %s is not base64", ErrSecret, PrefixSecret)
		}
		if len(raw) < MinSecretBytes || len(raw) > MaxSecretBytes {
			return Secret{}, fmt.Errorf("%w: it holds %d bytes, want %d to %d", ErrSecret, len(raw), MinSecretBytes, MaxSecretBytes)
		}
		return Secret{Kind: KindHMAC, Bytes: raw}, nil
	case strings.HasPrefix(text, PrefixPrivate):
		return parsePrivate(text[len(PrefixPrivate):])
	case strings.HasPrefix(text, PrefixPublic):
		return Secret{}, fmt.Errorf("%w: this is a public key (%s); signing needs the private one (%s)", ErrSecret, PrefixPublic, PrefixPrivate)
	default:
		return Secret{}, fmt.Errorf("%w: want %s<base64> or %s<base64>", ErrSecret, PrefixSecret, PrefixPrivate)
	}
}

func parsePrivate(text string) (Secret, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return Secret{}, fmt.Errorf("%w: what follows %s is not base64", ErrSecret, PrefixPrivate)
	}
	switch len(raw) {
	case ed25519.SeedSize:
		return Secret{Kind: KindEd25519, Private: ed25519.NewKeyFromSeed(raw)}, nil
	case ed25519.PrivateKeySize:
		// The second half is the public key. One that does not belong to the seed
		// makes signatures that leak the private key.
		key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if !key.Equal(ed25519.PrivateKey(raw)) {
			return Secret{}, fmt.Errorf("%w: the public half of the ed25519 key does not belong to the private one", ErrSecret)
		}
		return Secret{Kind: KindEd25519, Private: key}, nil
	default:
		return Secret{}, fmt.Errorf("%w: an ed25519 key has %d or %d bytes, this one %d", ErrSecret, ed25519.SeedSize, ed25519.PrivateKeySize, len(raw))
	}
}

// GenerateSecret makes a new symmetric secret of n random bytes from crypto/rand;
// n 0 means DefaultSecretBytes, and others than 24 to 64 are an error.
func GenerateSecret(n int) (string, error) {
	if n == 0 {
		n = DefaultSecretBytes
	}
	if n < MinSecretBytes || n > MaxSecretBytes {
		return "", fmt.Errorf("%w: %d bytes asked for, want %d to %d", ErrSecret, n, MinSecretBytes, MaxSecretBytes)
	}
	raw := make([]byte, n)
	rand.Read(raw) // never fails: crypto/rand ends the process instead
	return PrefixSecret + base64.StdEncoding.EncodeToString(raw), nil
}

// GenerateEd25519 makes a new key pair: the private key for the sender (whsk_…)
// and the public one for the receiver (whpk_…).
func GenerateEd25519() (private, public string, err error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("generating an ed25519 key: %w", err)
	}
	return PrefixPrivate + base64.StdEncoding.EncodeToString(key), PrefixPublic + base64.StdEncoding.EncodeToString(pub), nil
}
