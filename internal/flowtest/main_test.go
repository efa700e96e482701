package flowtest

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the entry of the processes that tests start and kill: the test
// binary executes itself, and finds its configuration in the environment.
func TestMain(m *testing.M) {
	if os.Getenv(childConfig) != "" {
		os.Exit(runChild())
	}
	goleak.VerifyTestMain(withShared(m))
}
