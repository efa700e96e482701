//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package egress

import (
	"io"
	"syscall"
)

// peeker looks at what the kernel holds for a socket, without waiting and without
// taking it: 0 bytes and no error mean that nothing is there; io.EOF that the peer
// has closed. Control, unlike Read, does not wait for the goroutine that reads.
func peeker(raw syscall.RawConn) func() (int, error) {
	var one [1]byte
	var n int
	var err error
	look := func(fd uintptr) {
		n, _, err = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN || err == syscall.EINTR:
			n, err = 0, nil
		case err == nil && n == 0:
			err = io.EOF
		}
	}
	return func() (int, error) { // one writer at a time, so the variables may be shared
		if cerr := raw.Control(look); cerr != nil {
			return 0, cerr
		}
		return n, err
	}
}
