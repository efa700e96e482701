package request

import (
	"encoding/base64"
	"net/http"

	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

// Opener decrypts a sealed secret of an endpoint.
type Opener func(endpointID, sealed string) (string, error)

// SignerOf makes the signer of an endpoint's current secrets; errors are the opener's
// and signer.New's.
func SignerOf(rec *schemas.Endpoint, open Opener) (*signer.Signer, error) {
	keys := make([]signer.Key, 0, len(rec.Secrets))
	for _, s := range rec.Secrets {
		text, err := open(rec.ID, s.Sealed)
		if err != nil {
			return nil, err
		}
		keys = append(keys, signer.Key{Secret: text, ExpiresAt: s.ExpiresAt})
	}
	return signer.New(rec.Signing, keys)
}

// OwnHeaders are the headers that an endpoint is registered with, its authorization
// included; the error is the opener's, and what is returned with it lacks that.
func OwnHeaders(rec *schemas.Endpoint, open Opener) (http.Header, error) {
	h := http.Header{}
	for _, p := range rec.Headers {
		h.Add(p.Name, p.Value)
	}
	if rec.Auth == nil {
		return h, nil
	}
	if rec.Auth.Bearer != "" {
		token, err := open(rec.ID, rec.Auth.Bearer)
		if err != nil {
			return h, err
		}
		h.Set("Authorization", "Bearer "+token)
	}
	if b := rec.Auth.Basic; b != nil {
		password, err := open(rec.ID, b.Password)
		if err != nil {
			return h, err
		}
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(b.User+":"+password)))
	}
	return h, nil
}

// Forwarded are the names of the record headers that an endpoint wants; nil: none.
func Forwarded(rec *schemas.Endpoint) map[string]bool {
	if len(rec.ForwardHeaders) == 0 {
		return nil
	}
	names := make(map[string]bool, len(rec.ForwardHeaders))
	for _, h := range rec.ForwardHeaders {
		names[h] = true
	}
	return names
}
