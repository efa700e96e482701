package kafka

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kslog"
)

func TestWhatTheClientCallsInfoIsOnlyInADebugLog(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelInfo:  "WARN no broker",
		slog.LevelDebug: "DEBUG joining group,WARN no broker",
	} {
		var out bytes.Buffer
		log := quieter{kslog.New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))}
		for said, msg := range map[kgo.LogLevel]string{kgo.LogLevelInfo: "joining group", kgo.LogLevelWarn: "no broker"} {
			if log.Level() >= said || level == slog.LevelDebug {
				log.Log(said, msg)
			}
		}
		for _, line := range strings.Split(want, ",") {
			level, msg, _ := strings.Cut(line, " ")
			if !strings.Contains(out.String(), "level="+level+` msg="`+msg) {
				t.Errorf("no %s in %s", line, out.String())
			}
		}
		if lines := strings.Count(out.String(), "\n"); lines != strings.Count(want, ",")+1 {
			t.Errorf("%d lines: %s", lines, out.String())
		}
	}
}

func TestATopicThatWasMadeIsNotCalledMissing(t *testing.T) {
	done := Applied{{Difference: Difference{Topic: "webhooks.dlq", Kind: KindMissing, Why: "dead letters"}, Outcome: Done}}
	if got := done.String(); got != "made: webhooks.dlq (dead letters)\n" {
		t.Error(got)
	}
}
