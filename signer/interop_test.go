package signer_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

// foreign is a verifier that is not ours, in a process of its own.
type foreign struct {
	name    string
	schemes []schemas.Scheme
	ask     func(scheme schemas.Scheme, secret string, h http.Header, body []byte) string
}

// startForeign runs a verifier. Where its language or its libraries are missing the
// test is skipped, or fails when MILENA_REQUIRE_VERIFIERS is set, as it is in CI.
func startForeign(t *testing.T, name string, cmd *exec.Cmd, schemes ...schemas.Scheme) foreign {
	t.Helper()
	missing := func(why string) {
		if os.Getenv("MILENA_REQUIRE_VERIFIERS") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	cmd.Stderr = nil
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		missing(name + " is not here: " + err.Error())
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	f := foreign{name: name, schemes: schemes}
	f.ask = func(scheme schemas.Scheme, secret string, h http.Header, body []byte) string {
		t.Helper()
		flat := map[string]string{}
		for k, v := range h {
			flat[k] = strings.Join(v, ", ") // as WSGI and Node hand several lines on
			flat[strings.ToLower(k)] = flat[k]
		}
		line, _ := json.Marshal(map[string]any{"scheme": scheme, "secret": secret, "headers": flat, "body": body})
		if _, err := in.Write(append(line, '\n')); err != nil || !lines.Scan() {
			missing(name + " or one of its libraries is not here (see the test's source)")
		}
		return lines.Text()
	}
	return f
}

// The libraries come from
//
//	python3 -m venv V && V/bin/pip install standardwebhooks stripe      MILENA_TEST_PYTHON=V/bin/python
//	cd N && npm install standardwebhooks @octokit/webhooks-methods stripe   MILENA_TEST_NODE=N
func TestVerifiersThatAreNotOursAcceptEveryStageOfARotation(t *testing.T) {
	t.Run("Python", func(t *testing.T) {
		python := os.Getenv("MILENA_TEST_PYTHON")
		if python == "" {
			python = "python3"
		}
		rotate(t, startForeign(t, "Python", exec.Command(python, "testdata/verify.py"), schemas.SchemeStandard, schemas.SchemeStripe))
	})
	t.Run("JavaScript", func(t *testing.T) {
		script, err := os.ReadFile("testdata/verify.mjs")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("node", "--input-type=module", "-e", string(script))
		cmd.Dir = os.Getenv("MILENA_TEST_NODE") // libraries are looked for from there
		rotate(t, startForeign(t, "Node", cmd, schemas.SchemeStandard, schemas.SchemeStripe, schemas.SchemeBody))
	})
}

func rotate(t *testing.T, f foreign) {
	now := time.Now()
	body := []byte(`{"type":"payment.captured","note":"grüße","amount":1200}`)
	before := []signer.Key{{Secret: secretA}}
	during := []signer.Key{{Secret: secretB}, {Secret: secretA, ExpiresAt: now.Add(time.Hour)}}
	after := []signer.Key{{Secret: secretB}, {Secret: secretA, ExpiresAt: now}}
	type stage struct {
		name     string
		keys     []signer.Key
		rotation string
		old, new bool
	}
	several := []stage{{"before", before, "", true, false}, {"during", during, "", true, true}, {"after", after, "", false, true}}
	single := []stage{ // this verifier reads one signature only
		{"before", before, signer.RotationOldUntilExpiry, true, false},
		{"during, old until expiry", during, signer.RotationOldUntilExpiry, true, false},
		{"after", after, signer.RotationOldUntilExpiry, false, true},
		{"during, new at once", during, signer.RotationNewAtOnce, false, true},
	}
	for _, scheme := range f.schemes {
		spec, stages := schemas.Signing{Schemes: []schemas.Scheme{scheme}}, several
		if scheme == schemas.SchemeBody {
			spec.Header, spec.Prefix, stages = "X-Hub-Signature-256", "sha256=", single
		}
		for _, st := range stages {
			spec.Rotation = st.rotation
			h := mustSign(t, mustNew(t, spec, st.keys...), now, body)
			for secret, want := range map[string]bool{secretA: st.old, secretB: st.new} {
				if got := f.ask(scheme, secret, h, body); (got == "ok") != want {
					t.Errorf("%s, %s, %s: secret accepted: %s, want %v", f.name, scheme, st.name, got, want)
				}
				if got := f.ask(scheme, secret, h, append([]byte(" "), body...)); got == "ok" {
					t.Errorf("%s, %s, %s: a changed body was accepted", f.name, scheme, st.name)
				}
			}
		}
	}
	spec := schemas.Signing{Schemes: []schemas.Scheme{schemas.SchemeStandard}}
	h := mustSign(t, mustNew(t, spec, before...), now.Add(-time.Hour), body)
	if got := f.ask(schemas.SchemeStandard, secretA, h, body); got == "ok" {
		t.Errorf("%s: a stale request was accepted", f.name)
	}
}
