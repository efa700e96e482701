package registry

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	sealedVersion = "v1"
	keySize       = 32 // AES-256
)

var keyID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// KeyRing seals and opens secrets with AES-256-GCM. Its first key seals, all of
// them open, so a key is replaced by putting a new one in front, running
// Admin.Rekey, and then taking the old one away. The endpoint id is additional
// data: a sealed secret copied to another endpoint does not open. It is immutable.
// A nil KeyRing has no keys: it opens and seals nothing.
type KeyRing struct {
	first string
	keys  map[string]cipher.AEAD
}

// ParseKeyRing reads entries "id:base64" of 32-byte keys, separated by commas or
// white space; lines that begin with # are comments. Ids match [A-Za-z0-9_-]{1,32}.
// Errors name the entry and never show key material.
func ParseKeyRing(text string) (*KeyRing, error) {
	r := &KeyRing{keys: make(map[string]cipher.AEAD)}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, entry := range strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(", \t\r\n", c) }) {
			if err := r.add(entry); err != nil {
				return nil, err
			}
		}
	}
	if r.first == "" {
		return nil, errors.New(`the key ring is empty; give at least one entry "id:base64 of 32 random bytes"`)
	}
	return r, nil
}

func (r *KeyRing) add(entry string) error {
	n := len(r.keys) + 1
	id, text, ok := strings.Cut(entry, ":")
	if !ok || !keyID.MatchString(id) {
		return fmt.Errorf(`entry %d of the key ring: want "id:base64 of 32 random bytes", the id from A-Z a-z 0-9 _ - and at most 32 long`, n)
	}
	if _, twice := r.keys[id]; twice {
		return fmt.Errorf("entry %d of the key ring: the id %q is given twice", n, id)
	}
	text = strings.TrimRight(text, "=")
	key, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		key, err = base64.RawURLEncoding.DecodeString(text)
	}
	if err != nil || len(key) != keySize {
		return fmt.Errorf("key %q of the key ring: want the base64 of exactly %d bytes", id, keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return fmt.Errorf("key %q of the key ring: %w", id, err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return fmt.Errorf("key %q of the key ring: %w", id, err)
	}
	if r.first == "" {
		r.first = id
	}
	r.keys[id] = aead
	return nil
}

// GenerateKey makes an entry for a key ring from 32 random bytes.
func GenerateKey(id string) (entry string, err error) {
	if !keyID.MatchString(id) {
		return "", fmt.Errorf("key id %q: use A-Z a-z 0-9 _ -, at most 32", id)
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	return id + ":" + base64.StdEncoding.EncodeToString(key), nil
}

// SealingKey is the id of the key that seals.
func (r *KeyRing) SealingKey() string {
	if r == nil {
		return ""
	}
	return r.first
}

// Has reports whether a key of that id is in the ring.
func (r *KeyRing) Has(id string) bool { return r != nil && r.keys[id] != nil }

// Seal encrypts a secret of an endpoint: v1.<key id>.<base64url of nonce and ciphertext>.
func (r *KeyRing) Seal(endpointID, secret string) (string, error) {
	if r == nil {
		return "", errors.New("no key ring is configured, so a secret cannot be stored")
	}
	aead := r.keys[r.first]
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(secret)+aead.Overhead())
	_, _ = rand.Read(nonce)
	sealed := aead.Seal(nonce, nonce, []byte(secret), []byte(endpointID))
	return sealedVersion + "." + r.first + "." + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// Open decrypts what Seal made for the same endpoint id. The error is a
// *MissingKeyError if the key is not in the ring, else wraps ErrSealed.
func (r *KeyRing) Open(endpointID, sealed string) (string, error) {
	id, text, err := splitSealed(sealed)
	if err != nil {
		return "", err
	}
	if !r.Has(id) {
		return "", &MissingKeyError{KeyID: id, EndpointID: endpointID}
	}
	aead := r.keys[id]
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < aead.NonceSize() {
		return "", &SealedError{KeyID: id, EndpointID: endpointID}
	}
	secret, err := aead.Open(nil, b[:aead.NonceSize()], b[aead.NonceSize():], []byte(endpointID))
	if err != nil {
		return "", &SealedError{KeyID: id, EndpointID: endpointID}
	}
	return string(secret), nil
}

// Opens returns nil if the ring opens all that is sealed of an endpoint, else why not.
func (r *KeyRing) Opens(ep *Endpoint) error {
	for sealed := range sealedTexts(ep) {
		if _, err := r.Open(ep.ID, sealed); err != nil {
			return err
		}
	}
	return nil
}

func splitSealed(sealed string) (key, text string, err error) {
	version, rest, ok := strings.Cut(sealed, ".")
	key, text, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || version != sealedVersion || !keyID.MatchString(key) {
		return "", "", ErrSealed
	}
	return key, text, nil
}
