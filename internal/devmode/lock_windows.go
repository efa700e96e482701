package devmode

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockAt is beyond what is written, because Windows forbids reading what is locked.
const lockAt = 1 << 20

// tryLock reports whether the lock of the file is ours now.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		&windows.Overlapped{Offset: lockAt})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}
