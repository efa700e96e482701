package flowtest

import (
	"log/slog"
	"os"
	"testing"

	"github.com/milena-project/milena/internal/logging"
	"github.com/milena-project/milena/internal/testkit"
)

// TestMain is also the entry of the processes that tests start and kill: the test
// binary executes itself, and finds its configuration in the environment.
func TestMain(m *testing.M) {
	if os.Getenv(childConfig) != "" {
		os.Exit(runChild())
	}
	logging.Standard(slog.New(slog.DiscardHandler)) // misbehaving peers are the point here
	testkit.VerifyMain(withShared(m))
}
