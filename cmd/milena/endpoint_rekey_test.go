package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
)

// setting replaces a variable of an environment.
func setting(env []string, name, value string) []string {
	out := []string{name + "=" + value}
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			out = append(out, e)
		}
	}
	return out
}

func TestARekeyedRegistryNeedsTheNewKeyAlone(t *testing.T) {
	env := registered(t)
	old := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "MILENA_KEYRING="); ok {
			old = v
		}
	}
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair := testkit.NewAuthority(t).Issue(t, testkit.CertSpec{Name: "milena-of-shop"})
	cert, key := file("cert.pem", pair.CertPEM), file("key.pem", pair.KeyPEM)
	must(t, env, "endpoint", "create", "--id", "shop", "--url", "https://shop.example/hook", "--bearer-file", file("token", []byte("t0ken-of-shop")),
		"--client-cert", cert, "--client-key", key)
	must(t, env, "endpoint", "create", "--id", "plain", "--url", "https://shop.example/plain")
	for _, args := range [][]string{{"endpoint", "get", "shop"}, {"endpoint", "get", "shop", "--json"}} {
		out := must(t, env, args...)
		if !strings.Contains(out, "CN=milena-of-shop") || strings.Contains(out, "PRIVATE KEY") || strings.Contains(out, "v1.test") {
			t.Errorf("%s", out)
		}
	}
	for _, args := range [][]string{
		{"endpoint", "update", "plain", "--client-cert", cert},
		{"endpoint", "update", "plain", "--client-key", key},
	} {
		if res := run(t, "", env, args...); res.code != exitUsage || !strings.Contains(res.err, "belong together") {
			t.Errorf("%+v", res)
		}
	}
	if res := run(t, "", env, "endpoint", "update", "plain", "--client-cert", cert, "--client-key", cert); res.code == exitDone || strings.Contains(res.err, "-----BEGIN") {
		t.Errorf("%+v", res)
	}

	fresh, err := registry.GenerateKey("fresh")
	if err != nil {
		t.Fatal(err)
	}
	both, alone := setting(env, "MILENA_KEYRING", fresh+","+old), setting(env, "MILENA_KEYRING", fresh)
	if res := run(t, "", alone, "endpoint", "rekey"); res.code == exitDone {
		t.Errorf("secrets were sealed anew without the key that opens them: %+v", res)
	}
	if out := must(t, both, "endpoint", "rekey"); out != "2 endpoints sealed anew\n" {
		t.Errorf("%q", out)
	}
	var again struct{ Rekeyed int }
	if err := json.Unmarshal([]byte(must(t, both, "endpoint", "rekey", "--json")), &again); err != nil || again.Rekeyed != 0 {
		t.Errorf("%v, %d sealed again", err, again.Rekeyed)
	}
	must(t, alone, "endpoint", "update", "shop", "--description", "by the new key")
	must(t, alone, "endpoint", "rotate-secret", "shop")
	must(t, alone, "endpoint", "update", "shop", "--client-cert", "")
	if out := must(t, alone, "endpoint", "get", "shop"); strings.Contains(out, "CN=") || !strings.Contains(out, "version 4") {
		t.Errorf("%s", out)
	}
}
