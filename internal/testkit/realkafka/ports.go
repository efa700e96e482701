package realkafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Ports are taken below the range from which the kernel serves outgoing
// connections: a killed broker's port would else go to some client's
// connection, and the broker could not come back.
const (
	lowestPort  = 20000
	highestPort = 32000
	portTries   = 200
)

// reservePort finds a free loopback port and keeps other test processes from
// choosing it until release is called or the process ends.
func reservePort() (port int, release func(), err error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("milena-test-ports-%d", os.Getuid())) // another user's cannot be written to
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, nil, err
	}
	for range portTries {
		port = lowestPort + rand.IntN(highestPort-lowestPort)
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return 0, nil, err
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && isFree(port) {
			return port, func() { _ = f.Close() }, nil
		}
		_ = f.Close()
	}
	return 0, nil, errors.New("no free port between 20000 and 32000")
}

func isFree(port int) bool {
	ln, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}
