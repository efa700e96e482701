//go:build kafka

package realkafka

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(WithShared(m)) }
