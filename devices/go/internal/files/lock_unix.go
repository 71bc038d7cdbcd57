//go:build unix

package files

import (
	"errors"
	"os"
	"syscall"
)

var full = []error{syscall.ENOSPC, syscall.EDQUOT}

// lock opens a file and takes its lock, or tells that another open file has it.
func lock(path string) (file *os.File, held bool, err error) {
	file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, false, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err == nil {
		return file, false, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, true, nil
	}
	return nil, false, &os.PathError{Op: "lock", Path: path, Err: err}
}

// flush makes the names in a folder durable.
func flush(folder string) error {
	file, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
