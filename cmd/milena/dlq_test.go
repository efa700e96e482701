package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// bury puts dead letters of an endpoint into a cluster, and registers the endpoint.
func bury(t *testing.T, fake *testkit.Fake, endpoint string, payloads ...string) (ids []string) {
	t.Helper()
	names := schemas.Names{Prefix: schemas.DefaultPrefix}
	w, err := kafka.NewWriter(kafka.Config{Brokers: fake.Brokers(), Names: names, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ep, err := json.Marshal(schemas.Endpoint{ID: endpoint, URL: "https://example.com/it's", EventTypes: []string{"*"}, State: schemas.StateEnabled, Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Write(kafka.Message{Topic: names.Endpoints(), Key: []byte(endpoint), Value: ep}, nil)
	part := kafka.Partition([]byte(endpoint), 12)
	for i, payload := range payloads {
		d := schemas.Delivery{EndpointID: endpoint, Payload: []byte(payload), Attempt: 9, LastStatus: 503, Error: "HTTP 503 \x1b[31m",
			Event:  schemas.Event{ID: "evt", Source: "/shop", Type: "order.created", SpecVersion: "1.0"},
			Origin: schemas.Origin{Topic: names.Deliveries(), TopicID: [4]byte{1}, Partition: part, Offset: int64(i)}}
		l := schemas.NewLetter(d, schemas.ReasonExhausted, time.Now())
		rec := l.Record()
		w.Write(kafka.Message{Topic: names.DLQ(), Partition: part, Key: rec.Key, Value: rec.Value, Headers: rec.Headers}, nil)
		ids = append(ids, l.ID())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestDeadLettersFromTheCommandLine(t *testing.T) {
	fake, env := cluster(t)
	ids := bury(t, fake, "shop-1", `{"b":1.00,"a":"x'y"}`, "\x00\x01", "")
	if res := run(t, "", env, "dlq", "summary"); res.code != 0 || !strings.Contains(res.out, "3        shop-1") || strings.Contains(res.out, "\x1b") {
		t.Errorf("summary: %+v", res)
	}
	if res := run(t, "", env, "dlq", "count", "--status", "5xx", "--type", "order.*"); res.out != "3\n" {
		t.Errorf("count: %+v", res)
	}
	if res := run(t, "", env, "dlq", "list", "--json", "--limit", "2"); res.code != 0 || strings.Count(res.out, "\n") != 2 || !strings.Contains(res.out, `"delivery_id":"`+ids[2]) {
		t.Errorf("list: %+v", res)
	}
	if res := run(t, "", env, "dlq", "show", ids[0]); res.code != 0 || !strings.Contains(res.out, "{\n  \"b\": 1.00,\n  \"a\": \"x'y\"\n}") || !strings.Contains(res.out, "death          1, open") || strings.Index(res.out, "payload, ") > strings.Index(res.out, "  reason  ") {
		t.Errorf("show: %+v", res)
	}
	replayOnce(t, env, ids)
	discardAndImport(t, env)
}

func replayOnce(t *testing.T, env, ids []string) {
	t.Helper()
	res := run(t, "", env, "dlq", "replay", "--id", ids[0], "--dry-run")
	if res.code != 0 || !strings.Contains(res.err, "1 of 1 to replay") {
		t.Errorf("dry run: %+v", res)
	}
	if res := run(t, "", env, "dlq", "replay", "--id", ids[0], "--canary", "--dry-run"); !strings.Contains(res.err, "of each endpoint the oldest goes first") {
		t.Errorf("dry run with canaries: %+v", res)
	}
	res = run(t, "", env, "dlq", "replay", "--id", ids[0], "--yes", "--because", "mended", "--json")
	var rep dlq.Report
	if err := json.Unmarshal([]byte(res.out), &rep); err != nil || res.code != 0 || rep.Settled != 1 || rep.Run.State != schemas.RunDone || rep.Run.Finished.IsZero() {
		t.Fatalf("replay: %v %+v", err, res)
	}
	if res := run(t, "", env, "runs", "show", rep.Run.ID); res.code != 0 || !strings.Contains(res.out, "mended") || !strings.Contains(res.out, "done") {
		t.Errorf("runs show: %+v", res)
	}
	if res := run(t, "", env, "runs", "list", "--json"); res.code != 0 || !strings.Contains(res.out, rep.Run.ID) {
		t.Errorf("runs list: %+v", res)
	}
	if res := run(t, "", env, "runs", "resume", rep.Run.ID, "--rate", "auto"); res.code != exitFailed || !strings.Contains(res.err, "finished") {
		t.Errorf("resume of a finished run: %+v", res)
	}
	if res := run(t, "", env, "runs", "resume", rep.Run.ID, "--canary-wait", "1m"); res.code != exitUsage || !strings.Contains(res.err, "--canary-wait is for a replay with --canary") {
		t.Errorf("resume of a replay without canaries: %+v", res)
	}
	if res := run(t, "", env, "runs", "resume", rep.Run.ID, "--export-to", "x.jsonl"); res.code != exitUsage || !strings.Contains(res.err, "--export-to is for a discard") {
		t.Errorf("resume of a replay with an export: %+v", res)
	}
	if res := run(t, "", env, "dlq", "show", ids[0]); !strings.Contains(res.out, "replayed on ") || !strings.Contains(res.out, rep.Run.ID) {
		t.Errorf("show of a replayed one: %+v", res)
	}
}

func discardAndImport(t *testing.T, env []string) {
	t.Helper()
	dir := t.TempDir()
	file, again := filepath.Join(dir, "a.jsonl.gz"), filepath.Join(dir, "b.jsonl")
	if res := run(t, "", env, "dlq", "discard", "--endpoint", "shop-1", "--because", "test", "--yes", "--export-to", file); res.code != 0 ||
		!strings.Contains(res.err, "they are written to "+file+" first; milena dlq import "+file+" brings them back") || !strings.Contains(res.err, "is done: 2 of 2 discarded\n") {
		t.Fatalf("discard: %+v", res)
	}
	if res := run(t, "", env, "dlq", "count"); res.out != "0\n" {
		t.Errorf("after the discard: %+v", res)
	}
	if res := run(t, "", env, "dlq", "discard", "--all", "--because", "test", "--yes", "--export-to", file); res.code != exitUsage || !strings.Contains(res.err, file+" is there already") {
		t.Errorf("discard to a file that is there: %+v", res)
	}
	preview := func(want string) {
		t.Helper()
		if res := run(t, "", env, "dlq", "import", file, "--dry-run", "--json"); res.code != 0 || res.out != want {
			t.Errorf("a dry run: %+v", res)
		}
	}
	preview(`{"matched":2,"write":2,"skip":{"already_there":0},"complete":true}` + "\n")
	if res := run(t, "", env, "dlq", "import", file); res.code != 0 || !strings.Contains(res.err, "is done: 2 of 2 written\n") {
		t.Fatalf("import: %+v", res)
	}
	preview(`{"matched":2,"write":0,"skip":{"already_there":2},"complete":true}` + "\n")
	if res := run(t, "", env, "dlq", "import", file); res.code != 0 || !strings.Contains(res.err, "is done: 0 of 2 written\nskipped 2: they are there already") {
		t.Fatalf("import of what is there: %+v", res)
	}
	if res := run(t, "", env, "dlq", "export", "--to", again); res.code != 0 || !strings.Contains(res.err, "2 dead letters") {
		t.Fatalf("export: %+v", res)
	}
	text, err := os.ReadFile(again)
	if err != nil || !strings.Contains(string(text), `"value":"AAE="`) || !strings.Contains(string(text), `"value":""`) {
		t.Errorf("%v %s", err, text)
	}
	if err := os.WriteFile(again, []byte(strings.Replace(string(text), "AAE=", "AAI=", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := run(t, "", env, "dlq", "import", again); res.code != exitFailed || !strings.Contains(res.err, "milena: "+again+": the export is damaged: ") {
		t.Errorf("import of a damaged one: %+v", res)
	}
	if err := os.WriteFile(again, []byte("kafka:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := run(t, "", env, "dlq", "import", again); res.code != exitFailed || !strings.HasSuffix(res.err, "line 1: this is not a file that milena dlq export wrote\n") {
		t.Errorf("import of another file: %+v", res)
	}
}

func TestCurlPostsTheExactPayload(t *testing.T) {
	fake, env := cluster(t)
	ids := bury(t, fake, "shop-1", "it's \x00 binary\n")
	res := run(t, "", env, "dlq", "show", ids[0], "--curl")
	if res.code != 0 || !strings.Contains(res.err, "no signature") || !strings.Contains(res.out, "milena-delivery-id: "+ids[0]) || !strings.Contains(res.out, "--globoff") {
		t.Fatalf("%+v", res)
	}
	// A shell shows what curl would get.
	script := "curl() { cat; }\n" + res.out
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
	if err != nil || string(out) != "it's \x00 binary\n" {
		t.Errorf("%q %v", out, err)
	}
}

func TestBadInputAboutDeadLetters(t *testing.T) {
	_, env := cluster(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"dlq show nothing", exitFailed, "no such dead letter: nothing"},
		{"dlq count --status 6", exitUsage, `--status "6": want a status such as 404`},
		{"dlq count --reason bored", exitUsage, `--reason "bored": want one of exhausted`},
		{"dlq list --error-class odd", exitUsage, `--error-class "odd"`},
		{"dlq list --endpoint a.b", exitUsage, `--endpoint "a.b"`},
		{"dlq list --since tomorrow", exitUsage, `--since "tomorrow"`},
		{"dlq list --replayed --not-replayed", exitUsage, "only one of"},
		{"dlq replay --yes", exitUsage, "--all"},
		{"dlq replay --all", exitUsage, "nobody can be asked"},
		{"dlq replay --all --yes --rate fast", exitUsage, `--rate "fast"`},
		{"dlq replay --all --yes", exitDone, "no dead letters"},
		{"dlq replay --all --yes --fail-empty", exitFailed, "no dead letters"},
		{"dlq replay --all --yes --wait-for 1m", exitUsage, "--wait-for is for --wait"},
		{"dlq replay --all --yes --canary-wait 1m", exitUsage, "--canary-wait is for --canary"},
		{"dlq export --to x.jsonl --gzip", exitUsage, "--gzip is for standard output"},
		{"runs resume run-x --rate fast", exitUsage, `--rate "fast"`},
		{"runs resume run-x --wait-for 1m", exitUsage, "--wait-for is for --wait"},
		{"dlq discard --all --yes", exitUsage, "--because"},
		{"dlq discard --all --yes --because x", exitUsage, "--export-to"},
		{"dlq discard --all --yes --because x --no-export", exitDone, "no dead letters"},
		{"dlq import /nonexistent", exitUsage, "no such file"},
		{"dlq list", exitDone, "no dead letters"},
		{"resend", exitUsage, "say which"},
		{"resend --endpoint shop-1", exitUsage, "--missing"},
		{"resend --endpoint shop-1 --all", exitUsage, "--since"},
		{"resend --endpoint shop-1 --all --since 1h", exitUsage, "nobody can be asked"},
		{"resend --endpoint shop-1 --all --since 1h --yes", exitDone, "nothing matched"},
		{"resend --event x --yes", exitFailed, "no such event: x is not in webhooks.deliveries, which keeps what is younger than its retention; --from-sources"},
		{"resend --delivery x --dry-run", exitFailed, "no such delivery: x is not in webhooks.deliveries"},
		{"resend --delivery x --missing --since 1d --dry-run", exitFailed, "no such delivery: x"},
		{"resend --endpoint shop-1,x.y --all --since 1h --yes", exitUsage, `--endpoint "x.y": want an endpoint id`},
		{"resend --endpoint shop-1 --all --since 1h --yes --fail-empty", exitFailed, "nothing matched"},
		{"resend --event x --yes --max -1", exitUsage, "--max -1"},
		{"resend --event x --all --yes", exitUsage, "--all is for a window"},
		{"resend --missing --since 2m --dry-run", exitUsage, "--missing looks at what is older than 15m"},
		{"resend --missing --since 1d --dry-run", exitDone, "nothing matched"},
		{"runs show run-x", exitFailed, "no such run: run-x"},
		{"runs cancel run-x", exitFailed, "no such run: run-x"},
		{"runs resume run-x", exitFailed, "no such run: run-x"},
	} {
		res := run(t, "", env, strings.Fields(c.args)...)
		if res.code != c.code || !strings.Contains(res.err, c.want) {
			t.Errorf("milena %s: exit %d, want %d with %q in %s", c.args, res.code, c.code, c.want, res.err)
		}
	}
}

func TestAMistakeInTheFlagsIsSaidWithoutAKafka(t *testing.T) {
	inDir(t)
	env := []string{"MILENA_KAFKA_BROKERS=127.0.0.1:1"}
	for _, args := range []string{"dlq export --to x.jsonl --gzip", "dlq replay --yes", "dlq discard --all --yes", "resend", "runs resume run-x --rate fast", "runs resume run-x --wait-for 1m"} {
		if res := run(t, "", env, append(strings.Fields(args), "--timeout", "1s")...); res.code != exitUsage {
			t.Errorf("milena %s: %+v", args, res)
		}
	}
}

func TestADryRunOfNothingIsAPlanOfNothing(t *testing.T) {
	_, env := cluster(t)
	res := run(t, "", env, "dlq", "replay", "--all", "--dry-run", "--json")
	var plan dlq.View
	if err := json.Unmarshal([]byte(res.out), &plan); err != nil || res.code != exitDone || plan.Matched != 0 {
		t.Errorf("%v %+v", err, res)
	}
}

func TestWhatIsReadByAProgramIsThereAlsoWhereThereIsNothingToDo(t *testing.T) {
	fake, env := cluster(t)
	for _, args := range []string{"dlq replay --all --yes --json", "dlq discard --all --yes --because x --no-export --json", "resend --endpoint shop-1 --all --since 1h --yes --json"} {
		res := run(t, "", env, strings.Fields(args)...)
		var plan dlq.View
		if err := json.Unmarshal([]byte(res.out), &plan); err != nil || res.code != exitDone || !strings.Contains(res.out, `{"matched":0,"write":0,`) {
			t.Errorf("milena %s: %v %+v", args, err, res)
		}
	}
	bury(t, fake, "shop-1", "1")
	if res := run(t, "", env, "endpoint", "disable", "shop-1"); res.code != exitDone {
		t.Fatalf("%+v", res)
	}
	if res := run(t, "", env, "dlq", "replay", "--all", "--yes", "--json"); res.code != exitDone || !strings.Contains(res.out, `{"matched":1,"write":0,"skip":{"endpoint_disabled":1}`) {
		t.Errorf("all are skipped: %+v", res)
	}
	if res := run(t, "", env, "dlq", "summary", "--json"); !strings.Contains(res.out, `"endpoint_id":"shop-1","count":1`) || !strings.HasSuffix(res.out, `,"complete":true}`+"\n") {
		t.Errorf("summary: %+v", res)
	}
}

func TestAScriptMustSayAHighNumber(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1", "1", "2", "3")
	for _, verb := range [][]string{{"dlq", "replay", "--all"}, {"resend", "--event", "e1"}} {
		if res := run(t, "", env, append(verb, "--yes", "--max", "0")...); res.code != exitUsage || !strings.Contains(res.err, "--max 0: want 1 or more") {
			t.Errorf("%s: %+v", verb, res)
		}
	}
	if res := run(t, "", env, "dlq", "replay", "--all", "--yes", "--max", "2"); res.code != exitUsage || !strings.Contains(res.err, "3 letters are more than --max 2") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "dlq", "count"); res.out != "3\n" {
		t.Errorf("%+v", res)
	}
	p := &program{err: io.Discard}
	plan := func(letters int64) *dlq.Plan { return &dlq.Plan{Job: dlq.Job{Kind: schemas.RunReplay}, Write: letters} }
	if err := p.consent(t.Context(), &jobFlags{yes: true}, plan(10_001)); err == nil || !strings.Contains(err.Error(), "say the number, --max 10001") {
		t.Errorf("%v", err)
	}
	for _, f := range []*jobFlags{{yes: true, max: 10_001}, {yes: true, max: 20_000}} {
		if err := p.consent(t.Context(), f, plan(10_001)); err != nil {
			t.Error(err)
		}
	}
	if err := p.consent(t.Context(), &jobFlags{yes: true}, plan(10_000)); err != nil {
		t.Error(err)
	}
}

// recorded puts the record of a run into a cluster.
func recorded(t *testing.T, fake *testkit.Fake, run schemas.Run) {
	t.Helper()
	names := schemas.Names{Prefix: schemas.DefaultPrefix}
	table := registry.OpenTable(kafka.Config{Brokers: fake.Brokers(), Names: names, Logger: slog.New(slog.DiscardHandler)}, names.Runs())
	defer table.Close()
	err := table.Swap(t.Context(), func(registry.Rows) ([]registry.Change, error) {
		run.Filter, run.Started, run.Updated = json.RawMessage("{}"), time.Now(), cmp.Or(run.Updated, time.Now())
		value, err := json.Marshal(run)
		return []registry.Change{{Key: run.ID, Value: value}}, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFlagsThatDoNotFitARunAreRefusedWhenItIsResumed(t *testing.T) {
	fake, env := cluster(t)
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunDiscard, State: schemas.RunCancelled, Export: dlq.Stdout, Snapshot: map[int32]int64{}})
	for flag, want := range map[string]string{"--wait": "run-x is of kind discard", "--canary-wait=1m": "--canary-wait is for", "--json": "standard output"} {
		if res := run(t, "", env, "runs", "resume", "run-x", flag); res.code != exitUsage || !strings.Contains(res.err, want) {
			t.Errorf("%s: %+v", flag, res)
		}
	}
}

// Kafka answers, so it must not be blamed for a runner that does not.
func TestACancelOfARunWhoseRunnerIsSilentSaysSo(t *testing.T) {
	fake, env := cluster(t)
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunReplay, State: schemas.RunRunning, Runner: "desk/7"})
	res := run(t, "", env, "runs", "cancel", "run-x", "--timeout", "5s")
	if res.code != exitFailed || !strings.Contains(res.err, "desk/7") || !strings.Contains(res.err, "has not said that it did") || strings.Contains(res.err, "gave no answer") {
		t.Errorf("%+v", res)
	}
}

func TestWhatEndedEarlyIsOnlyToldToBeResumedIfItCanBe(t *testing.T) {
	for kind, resumable := range map[schemas.RunKind]bool{schemas.RunReplay: true, schemas.RunDiscard: true, schemas.RunResend: false, schemas.RunImport: false} {
		run := schemas.Run{ID: "run-x", Kind: kind, State: schemas.RunCancelled, Filter: json.RawMessage("{}"), Snapshot: map[int32]int64{}}
		told := strings.Contains(nextStep(&run, nil, errors.New("ended")).Error(), "milena runs resume run-x")
		if _, err := dlq.ResumeJob(run); told != resumable || (err == nil) != resumable {
			t.Errorf("%s: told to resume it: %t, resuming: %v", kind, told, err)
		}
	}
}

func TestShowKeepsTheBytesOfHeadersInJSON(t *testing.T) {
	d := &dlq.Death{Entry: dlq.Entry{Letter: schemas.Letter{Delivery: schemas.Delivery{Extra: []schemas.Header{
		{Key: "x-text", Value: []byte("v")}, {Key: "x-bytes", Value: []byte{0xff, 0}}}}}}}
	text, err := json.Marshal(deathJSON(d))
	if err != nil || !strings.Contains(string(text), `"headers":[{"key":"x-text","value":"v"},{"key":"x-bytes","value":"","base64":"/wA="}]`) {
		t.Errorf("%s %v", text, err)
	}
}

func TestNoCurlForALetterWithoutItsPayload(t *testing.T) {
	err := (&dlqRun{}).showCurl(&dlq.Death{Entry: dlq.Entry{Letter: schemas.Letter{Mark: schemas.PayloadOmitted}}})
	if err == nil || !strings.Contains(err.Error(), "omitted") {
		t.Error(err)
	}
}

func TestAResendSpeaksOfEvents(t *testing.T) {
	env := registered(t)
	must(t, env, "endpoint", "create", "--id", "shop", "--url", "http://127.0.0.1:3000/hook")
	must(t, env, "send", "--endpoint", "shop", "--id", "e9", "--data", "{}")
	if res := run(t, "", env, "resend", "--event", "e9", "--dry-run"); res.code != exitDone || !strings.HasPrefix(res.err, "EVENTS  ENDPOINT\n1       shop\nwritten between ") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "resend", "--event", "e9", "--yes"); res.code != exitDone || !strings.Contains(res.err, "is done: 1 of 1 written\n") {
		t.Errorf("%+v", res)
	}
	res := run(t, "", env, "resend", "--event", "e9", "--yes", "--wait", "--wait-for", "1ms")
	if res.code != exitFailed || !strings.Contains(res.err, "1 of the 1 written are still on their way, and milena runs show run-") || !strings.Contains(res.out, "shop") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "resend", "--event", "e9", "--yes", "--wait-for", "1ms"); res.code != exitUsage || !strings.Contains(res.err, "--wait-for is for --wait") {
		t.Errorf("%+v", res)
	}
}

func TestAnExportOfNothingMakesNoFile(t *testing.T) {
	_, env := cluster(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "none.jsonl")
	for _, c := range []struct {
		args string
		code int
	}{{"--to " + file, exitDone}, {"--to " + file + " --fail-empty", exitFailed}} {
		if res := run(t, "", env, append([]string{"dlq", "export"}, strings.Fields(c.args)...)...); res.code != c.code || res.err != "no dead letters\n" {
			t.Errorf("%s: %+v", c.args, res)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v %v", files, err)
	}
	if err := os.WriteFile(file, []byte("of another day"), 0o600); err != nil {
		t.Fatal(err)
	}
	res := run(t, "", env, "dlq", "export", "--to", file)
	if text, err := os.ReadFile(file); err != nil || string(text) != "of another day" || res.code != exitUsage || !strings.Contains(res.err, "--to: "+file+" is there already") {
		t.Errorf("%q %v %+v", text, err, res)
	}
	// By a pipe an export of none comes through.
	res = run(t, "", env, "dlq", "export")
	if err := os.WriteFile(filepath.Join(dir, "piped.jsonl"), []byte(res.out), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := run(t, "", env, "dlq", "import", filepath.Join(dir, "piped.jsonl")); res.code != exitDone {
		t.Errorf("%+v", res)
	}
}

func TestAReplayOfWhatIsAllSkippedFailsForWhoWaits(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1", "1", "2")
	ep, err := json.Marshal(schemas.Endpoint{ID: "shop-1", URL: "https://example.com/", EventTypes: []string{"*"}, State: schemas.StateDisabled, Version: 2})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Produce(t, fake.Client(), &kgo.Record{Topic: "webhooks.endpoints", Key: []byte("shop-1"), Value: ep})
	for flag, code := range map[string]int{"": exitDone, "--wait": exitFailed, "--fail-empty": exitFailed} {
		res := run(t, "", env, strings.Fields("dlq replay --all --yes "+flag)...)
		told := strings.Contains(res.err, "milena: 2 of 2 were not delivered: 2 were skipped\n")
		if res.code != code || !strings.Contains(res.err, "skipped 2: their endpoint is disabled") || told != (flag == "--wait") {
			t.Errorf("%q: %+v", flag, res)
		}
	}
}

func TestAPreviewNamesWhatTakesLongAndWhatBelongsToNobody(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1", "1", "2", "3")
	ep, err := json.Marshal(schemas.Endpoint{ID: "shop-1", URL: "https://example.com/", EventTypes: []string{"*"}, State: schemas.StateEnabled, Version: 2,
		RateLimit: &schemas.RateLimit{Rate: 0.1}})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Produce(t, fake.Client(), &kgo.Record{Topic: "webhooks.endpoints", Key: []byte("shop-1"), Value: ep})
	l := schemas.NewLetter(schemas.Delivery{Payload: []byte("{}"), Origin: schemas.Origin{Topic: "webhooks.deliveries", Offset: 9}}, schemas.ReasonMalformed, time.Now())
	rec := l.Record()
	dead := &kgo.Record{Topic: "webhooks.dlq", Key: rec.Key, Value: rec.Value}
	for _, h := range rec.Headers {
		dead.Headers = append(dead.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	testkit.Produce(t, fake.Client(), dead)
	res := run(t, "", env, "dlq", "replay", "--all", "--dry-run")
	const rows = "3        shop-1    exhausted 3  ok; takes 0.1/s, so these in 20s or more\n1        (none)    malformed 1  -\n"
	if res.code != exitDone || !strings.Contains(res.err, rows) || !strings.Contains(res.err, "3 of 4 to replay") {
		t.Errorf("%+v", res)
	}
}
