//go:build !kafka

package retrytopics

import (
	"testing"

	"github.com/milena-project/milena/internal/testkit"
)

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	testkit.VerifyMain(m)
}
