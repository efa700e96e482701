package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/milena-project/milena/signer"
	"github.com/milena-project/milena/signer/verify"
)

func newSecret(t *testing.T) string {
	t.Helper()
	s, err := signer.GenerateSecret(24)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatSignMakesVerifyAccepts(t *testing.T) {
	dir := inDir(t)
	private, public, err := signer.GenerateEd25519()
	if err != nil {
		t.Fatal(err)
	}
	secret := newSecret(t)
	body := "{\"name\":\"O'Neill\",\n \"x\":1}"
	if err := os.WriteFile(filepath.Join(dir, "body"), []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"standard", "standard-ed25519", "stripe", "timestamp-body", "body"} {
		signs, verifies := secret, secret
		if scheme == "standard-ed25519" {
			signs, verifies = private, public
		}
		signed := run(t, body, []string{"WEBHOOK_SECRET=" + signs}, "signature", "sign", "--json", "--data", "-", "--scheme", scheme)
		var headers http.Header
		if err := json.Unmarshal([]byte(signed.out), &headers); err != nil || signed.code != 0 {
			t.Fatal(err, signed)
		}
		args := []string{"signature", "verify", "--data", "@body", "--scheme", scheme}
		for name, values := range headers {
			args = append(args, "--header", name+": "+values[0])
		}
		if res := run(t, "", []string{"WEBHOOK_SECRET=" + verifies}, args...); res.code != 0 || !strings.HasPrefix(res.out, "good") {
			t.Errorf("%s: %+v", scheme, res)
		}
		args[3] = body + " "
		if res := run(t, "", []string{"WEBHOOK_SECRET=" + verifies}, args...); res.code != exitFailed || !strings.Contains(res.out, "no signature matches") {
			t.Errorf("%s, changed body: %+v", scheme, res)
		}
	}
}

func TestTheCurlCommandOfSignVerifies(t *testing.T) {
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	secret := newSecret(t)
	v, err := verify.New(verify.Config{Secrets: []string{secret}})
	if err != nil {
		t.Fatal(err)
	}
	var verified []error
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, err := v.Verify(r.Header, body)
		verified = append(verified, err)
	}))
	defer srv.Close()
	for _, body := range []string{`{"a":"it's"}`, "@not a file\n\\ $HOME `x`", ""} {
		res := run(t, body, []string{"WEBHOOK_SECRET=" + secret}, "signature", "sign", "--data", "-", "--url", srv.URL)
		cmd := exec.Command("sh")
		cmd.Stdin = strings.NewReader(strings.Replace(res.out, "curl ", "curl --silent --show-error ", 1))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s\n%s", err, out, res.out)
		}
	}
	for i, err := range verified {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if len(verified) != 3 {
		t.Errorf("%d requests", len(verified))
	}
}
