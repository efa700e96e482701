package testkit_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/milena-project/milena/internal/testkit"
)

func TestAReservedPortRefusesAndIsListenedOnByItsOwnerOnly(t *testing.T) {
	addr := testkit.ReserveAddr(t)
	for range 3 {
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("a connection to a port that nobody listens on: %v %v", c, err)
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		_ = ln.Close()
	}
}
