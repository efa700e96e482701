//go:build kafka

package realkafka

import (
	"testing"

	"github.com/milena-project/milena/internal/testkit"
)

func TestMain(m *testing.M) { testkit.VerifyMain(WithShared(m)) }
