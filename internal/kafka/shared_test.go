//go:build kafka

package kafka

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/milena-project/milena/internal/testkit/realkafka"
)

func init() { wrap = func(m *testing.M) goleak.TestingM { return realkafka.WithShared(m) } }
