//go:build unix

package devmode

import (
	"errors"
	"os"
	"syscall"
)

// tryLock reports whether the lock of the file is ours now.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
