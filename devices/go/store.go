package device

import (
	"sync"
	"time"

	"ldpstream/device/internal/files"
	"ldpstream/device/internal/state"
)

// Store keeps one text durably. Processes and goroutines that share a store's text are one device. [File] and [Memory] make stores.
// A program can implement its own, such as a row of its database.
type Store interface {
	// Update calls change once with the text, which is empty at first. It keeps the text that change returns, durably before it
	// returns, and no other call of Update for this text runs meanwhile. It keeps the old text as a whole if change returns an
	// error, which it then returns, and after a crash or its own error: a [ErrStoreHeld], [ErrStoreFull] or [ErrStore].
	Update(change func(text []byte) ([]byte, error)) error
	// String returns the store's name in errors.
	String() string
}

// FileStore is the file of one person. Beside it stand its name with .lock and, during a change, with .new. It is open only during
// a call. It works on Linux, macOS, BSD and Windows.
type FileStore struct {
	// Wait is how long a call waits for another process that holds the file.
	Wait time.Duration

	path string
}

// File returns the store of a file, which waits 30 seconds for another process. Do not derive the name from the survey's name: a
// renamed survey would get a new file and a fresh budget.
func File(path string) *FileStore { return &FileStore{30 * time.Second, path} }

// Update implements [Store].
func (f *FileStore) Update(change func(text []byte) ([]byte, error)) error {
	return files.Update(f.path, f.Wait, change)
}

// String returns the path.
func (f *FileStore) String() string { return f.path }

// MemoryStore is a store for tests. It ends with the process.
type MemoryStore struct {
	mutex sync.Mutex
	text  []byte
}

// Memory returns an empty store.
func Memory() *MemoryStore { return &MemoryStore{} }

// Update implements [Store].
func (m *MemoryStore) Update(change func(text []byte) ([]byte, error)) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	text, err := change(m.text)
	if err == nil {
		m.text = text
	}
	return err
}

// String returns "memory".
func (m *MemoryStore) String() string { return "memory" }

// transaction changes a store's state, which is nil at first, and removed if the function returns nil.
func transaction(store Store, run func(kept *state.State) (*state.State, error)) error {
	return store.Update(func(text []byte) ([]byte, error) {
		kept, err := decoded(text, store)
		if err != nil {
			return nil, err
		}
		next, err := run(kept)
		if err != nil || next == nil {
			return nil, err
		}
		return state.Encode(next), nil
	})
}

// decoded reads a store's text; nil for an empty store.
func decoded(text []byte, store Store) (*state.State, error) {
	if len(text) == 0 {
		return nil, nil
	}
	kept := new(state.State)
	return kept, state.Decode(text, store.String(), kept)
}
