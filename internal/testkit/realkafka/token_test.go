//go:build kafka

package realkafka

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"
)

// unsecuredToken is a JWT without a signature, which a development broker takes.
func unsecuredToken(t *testing.T, subject string) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{
		"sub": subject, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"none"}`)) + "." + enc(claims) + "."
}
