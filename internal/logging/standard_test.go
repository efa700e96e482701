package logging

import (
	"bytes"
	"log"
	"log/slog"
	"strings"
	"testing"
)

func TestTheStandardLogEndsWhereAPeersWordsBegin(t *testing.T) {
	flags, out := log.Flags(), log.Writer()
	defer func() { log.SetFlags(flags); log.SetOutput(out) }()
	var b bytes.Buffer
	Standard(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	log.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "Authorization: Bearer s3cret", nil)
	if got := b.String(); !strings.Contains(got, "level=DEBUG") || !strings.Contains(got, "Unsolicited response") || strings.Contains(got, "s3cret") {
		t.Error(got)
	}
}
