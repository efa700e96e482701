package main

import (
	"os"
	"strings"
	"testing"
)

func TestAMistakeIsSaidWithoutWhatFollowsFromIt(t *testing.T) {
	inDir(t)
	if err := os.WriteFile("wrong.yaml", []byte("kafka: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"lag --config wrong.yaml", "lag --config none.yaml"} {
		if res := run(t, "", nil, strings.Fields(args)...); res.code != exitUsage || !strings.Contains(res.err, ".yaml") || strings.Contains(res.err, "kafka.brokers") {
			t.Errorf("milena %s: %+v", args, res)
		}
	}
	env := []string{"MILENA_KAFKA_BROKERS=127.0.0.1:1"}
	for args, want := range map[string]string{
		"dlq replay --endpoint shop --rate abc":                     `--rate "abc": want a number`,
		"resend --endpoint shop --all --since 1h --rate abc":        `--rate "abc": want a number`,
		"endpoint create --id shop --url localhost:3000/hook":       "the scheme is missing: begin with https://, or with http://",
		"endpoint create --id shop --url 127.0.0.1:3000/hook":       "the scheme is missing: begin with https://, or with http://",
		"endpoint create --id shop --url shop.example.com:443/hook": "the scheme is missing: begin with https://, or with http://",
	} {
		if res := run(t, "", append(env, registryKey(t)), append(strings.Fields(args), "--timeout", "1s")...); res.code != exitUsage || !strings.Contains(res.err, want) {
			t.Errorf("milena %s: %+v", args, res)
		}
	}
}

func TestTheVersionIsAFlagToo(t *testing.T) {
	if flag, verb := run(t, "", nil, "--version"), run(t, "", nil, "version"); flag != verb || !strings.HasPrefix(flag.out, "milena ") {
		t.Errorf("%+v, %+v", flag, verb)
	}
}
