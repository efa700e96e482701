package consume

import (
	"testing"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
)

func TestMain(m *testing.M) { testkit.VerifyMain(realkafka.WithShared(m)) }
