package consume

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/milena-project/milena/internal/testkit/realkafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(realkafka.WithShared(m)) }
