package ldpdevice

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Errors of the store.
var (
	ErrWrongSurvey  = errors.New("WrongSurvey")
	ErrStoreHeld    = errors.New("StoreHeld")
	ErrStoreFull    = errors.New("StoreFull")
	ErrStoreCleared = errors.New("StoreCleared")
)

// Store keeps one text durably. Save replaces the text as a whole or not at all; Load returns nothing for an empty store.
type Store interface {
	Load() ([]byte, error)
	Save(text []byte) error
}

// Memory is a store for tests.
type Memory struct{ text []byte }

// Load returns the last saved text.
func (m *Memory) Load() ([]byte, error) { return m.text, nil }

// Save replaces the text.
func (m *Memory) Save(text []byte) error { m.text = text; return nil }

// File is a store in a folder that one process holds at a time.
type File struct {
	folder string
	lock   *os.File
}

// OpenFile holds the folder until Close.
func OpenFile(folder string) (*File, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		lock.Close()
		return nil, fmt.Errorf("%w: another process holds %s", ErrStoreHeld, folder)
	}
	return &File{folder, lock}, nil
}

// Close lets another process hold the folder.
func (f *File) Close() error { return f.lock.Close() }

// Load reads the last saved text.
func (f *File) Load() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(f.folder, "state"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Save writes a new file, flushes it, and puts it in the old file's place.
func (f *File) Save(text []byte) error {
	fresh := filepath.Join(f.folder, "state.new")
	file, err := os.OpenFile(fresh, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = file.Write(text)
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err == nil {
		err = os.Rename(fresh, filepath.Join(f.folder, "state"))
	}
	if err == nil {
		var folder *os.File
		if folder, err = os.Open(f.folder); err == nil {
			err = errors.Join(folder.Sync(), folder.Close())
		}
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: no space in %s", ErrStoreFull, f.folder)
	}
	return err
}
