package main

import (
	"strings"
	"testing"
)

func TestAnEndpointThatAFilterNamesAndNobodyKnowsIsSaid(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "deep", "{}")
	for _, args := range []string{
		"dlq list", "dlq summary", "dlq count", "dlq export", "dlq replay --yes", "dlq discard --yes --because x --no-export",
		"resend --all --since 1h --yes", "resend --missing --since 1h --yes", "attempts",
	} {
		res := run(t, "", env, append(strings.Fields(args), "--endpoint", "deed")...)
		if res.code != exitDone || !strings.HasSuffix(res.err, "no endpoint is called deed; did you mean deep?\n") {
			t.Errorf("milena %s: %+v", args, res)
		}
	}
	if res := run(t, "", env, "dlq", "replay", "--endpoint", "other", "--yes", "--fail-empty"); res.code != exitFailed || res.err != "nothing matched\nno endpoint is called other\n" {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "dlq", "list", "--endpoint", "deep", "--reason", "rejected"); res.code != exitDone || res.err != "nothing matched\n" {
		t.Errorf("%+v", res)
	}
}

func TestWhereAllIsWellItIsSaid(t *testing.T) {
	env := registered(t)
	for _, args := range []string{"dlq list", "dlq summary"} {
		if res := run(t, "", env, strings.Fields(args)...); res.code != exitDone || res.err != "no dead letters\n" {
			t.Errorf("milena %s: %+v", args, res)
		}
	}
	must(t, env, "endpoint", "create", "--id", "shop", "--url", "http://127.0.0.1:3000/hook")
	must(t, env, "send", "--endpoint", "shop", "--data", "{}")
	res := run(t, "", env, "resend", "--endpoint", "shop", "--missing", "--since", "1h", "--until", "0s", "--yes")
	if res.code != exitDone || res.err != "nothing is missing\n" {
		t.Errorf("%+v", res)
	}
}

// At night a webhook-id is put where another id belongs; "no such attempts" alone would
// be read as "never attempted".
func TestAMessageIDWhereAnotherIDBelongsIsSaid(t *testing.T) {
	_, env := cluster(t)
	for _, flag := range []string{"--event", "--delivery"} {
		res := run(t, "", env, "attempts", flag, "msg_x")
		if res.code != exitDone || res.err != "no such attempts\n"+flag+" msg_x looks like a message id; that is --message msg_x\n" {
			t.Errorf("%s: %+v", flag, res)
		}
	}
	if res := run(t, "", env, "attempts", "--message", "msg_x"); res.err != "no such attempts\n" {
		t.Errorf("%+v", res)
	}
}
