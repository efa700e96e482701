package router

import (
	"testing"

	"github.com/milena-project/milena/internal/testkit"
)

func TestMain(m *testing.M) { testkit.VerifyMain(m) }
