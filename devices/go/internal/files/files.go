// Package files keeps a text in a file that processes share. A crash leaves the old text or the new one.
package files

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ldpstream/device/internal/fault"
)

const pause = 5 * time.Millisecond

// Update replaces the text of a file, or leaves it for an error or the same text. It waits for another process that holds the file.
func Update(path string, wait time.Duration, change func(text []byte) ([]byte, error)) error {
	lock, err := hold(path+".lock", wait)
	if err != nil {
		return err
	}
	defer lock.Close()
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(err)
	}
	after, err := change(before)
	if err != nil || bytes.Equal(after, before) {
		return err
	}
	return save(path, after)
}

// hold opens the lock file, and waits for its lock. Closing the file, or the end of the process, gives the lock back.
func hold(path string, wait time.Duration) (*os.File, error) {
	for begun := time.Now(); ; time.Sleep(pause) {
		file, held, err := lock(path)
		if err != nil {
			return nil, failed(err)
		}
		if !held {
			return file, nil
		}
		if time.Since(begun) >= wait {
			return nil, fault.New(fault.StoreHeld, "%s: another process holds the store", path)
		}
	}
}

// save writes a new file, flushes it, puts it in the old file's place and flushes the folder.
func save(path string, text []byte) error {
	fresh := path + ".new"
	err := os.Remove(fresh) // the rest of a crash may have other rights
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = write(fresh, text)
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err == nil {
		err = flush(filepath.Dir(path))
	}
	if err != nil {
		os.Remove(fresh) // a part of the new text
		return failed(err)
	}
	return nil
}

func write(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func failed(err error) error {
	for _, full := range full {
		if errors.Is(err, full) {
			return fault.New(fault.StoreFull, "%w", err)
		}
	}
	return fault.New(fault.Store, "%w", err)
}
