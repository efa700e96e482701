package main

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
)

// A write that is refused is tried for ever: whoever may only read has to learn it
// before the first one.
func TestWhoMayOnlyReadIsToldBeforeARunBegins(t *testing.T) {
	inDir(t)
	read := kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "webhooks.", Pattern: kmsg.ACLResourcePatternTypePrefixed,
		Operation: kmsg.ACLOperationRead, Allow: true}
	fake := testkit.NewFake(t, testkit.WithBrokers(1), testkit.WithKfake(kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "admin", "a"), kfake.User("PLAIN", "reader", "r", read)))
	as := func(user, password string) []string {
		return []string{"MILENA_KAFKA_BROKERS=" + strings.Join(fake.Brokers(), ","), "MILENA_KAFKA_SASL_MECHANISM=PLAIN",
			"MILENA_KAFKA_SASL_USER=" + user, "MILENA_KAFKA_SASL_PASSWORD=" + password}
	}
	if res := run(t, "", as("admin", "a"), "topics", "apply"); res.code != exitDone {
		t.Fatalf("%+v", res)
	}
	for _, args := range []string{"dlq replay --all --yes", "dlq import x.jsonl", "resend --event x --yes", "runs resume run-x"} {
		res := run(t, "", as("reader", "r"), strings.Fields(args)...)
		if res.code != exitFailed || !strings.Contains(res.err, "--operation Write --topic webhooks.deliveries") {
			t.Errorf("milena %s: %+v", args, res)
		}
	}
	if res := run(t, "", as("reader", "r"), "resend", "--endpoint", "x", "--all", "--since", "1h", "--dry-run"); res.code != exitDone {
		t.Errorf("a look needs no right to write: %+v", res)
	}
}

// Who is not told of a right that is missing would write for ever.
func TestARunDoesNotBeginBeforeItsRightsAreKnown(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1", "{}")
	var asked atomic.Int32
	again, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster().KeepControl()
		if !req.(*kmsg.MetadataRequest).IncludeTopicAuthorizedOperations { //nolint:forcetypeassert // it is that key's
			return nil, nil, false
		}
		switch asked.Add(1) {
		case 1: // the answer comes when nobody waits for it any more
			fake.Cluster().SleepControl(func() {
				select {
				case <-again:
				case <-ended:
				}
			})
		case 2:
			close(again)
		}
		return nil, nil, false
	})
	res := run(t, "", env, "dlq", "replay", "--endpoint", "shop-1", "--include-disabled", "--yes", "--because", "x", "--timeout", "1s")
	if res.code != exitFailed || !strings.Contains(res.err, "gave no answer within 1s (--timeout)") {
		t.Errorf("%+v", res)
	}
}
