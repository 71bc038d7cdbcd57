package files

import (
	"os"
	"syscall"
)

const (
	sharingViolation syscall.Errno = 32
	handleDiskFull   syscall.Errno = 39
	diskFull         syscall.Errno = 112
)

var full = []error{handleDiskFull, diskFull}

// lock opens a file that nobody else can open meanwhile, or tells that somebody has it open.
func lock(path string) (file *os.File, held bool, err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, false, err
	}
	handle, err := syscall.CreateFile(name, syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err == sharingViolation {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return os.NewFile(uintptr(handle), path), false, nil
}

// flush does nothing: Windows makes a rename durable itself.
func flush(string) error { return nil }
