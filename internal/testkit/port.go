package testkit

import (
	"fmt"
	"syscall"
	"testing"
)

// ReservePort takes a loopback port for a test and returns it. Nobody listens there,
// so a connection is refused; and nobody else on this machine is given it, so that the
// test may say later who does: a listener of the test's own can be opened on it and
// closed again, as often as it likes. A port that was only free a moment ago is
// somebody else's now and then.
func ReservePort(t testing.TB) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	// As Go's listeners have it: then the two share the port, and the kernel gives it to
	// nobody who asks for any.
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	return name.(*syscall.SockaddrInet4).Port
}

// ReserveAddr is ReservePort as host and port.
func ReserveAddr(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", ReservePort(t))
}
