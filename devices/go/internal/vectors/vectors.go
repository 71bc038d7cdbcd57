// Package vectors reads the test vectors of all devices. The variable VECTORS names their folder.
package vectors

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Read returns the cases of a file, and says how many there are.
func Read[T any](t *testing.T, name string) (cases []T) {
	t.Helper()
	folder := os.Getenv("VECTORS")
	if folder == "" {
		_, file, _, _ := runtime.Caller(0)
		folder = filepath.Join(filepath.Dir(file), "..", "..", "..", "vectors")
	}
	text, err := os.ReadFile(filepath.Join(folder, name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d %s", len(cases), name)
	return cases
}

// Hex is bytes that are hexadecimal digits in JSON.
type Hex []byte

// UnmarshalJSON reads the digits.
func (h *Hex) UnmarshalJSON(text []byte) error {
	var digits string
	if err := json.Unmarshal(text, &digits); err != nil {
		return err
	}
	data, err := hex.DecodeString(digits)
	*h = data
	return err
}

// Random gives the listed bytes, and then an error.
type Random struct{ *bytes.Reader }

// NewRandom lists the bytes.
func NewRandom(data []byte) Random { return Random{bytes.NewReader(data)} }

// Read fills the buffer, or gives an error and keeps all bytes.
func (r Random) Read(buffer []byte) (int, error) {
	if r.Len() < len(buffer) {
		return 0, errors.New("the vector has no more bytes")
	}
	return r.Reader.Read(buffer)
}

// Close tells whether a number is another one, which is infinite for nil, with a relative tolerance of 1e-9.
func Close(a float64, b *float64) bool {
	if b == nil {
		return math.IsInf(a, 1)
	}
	return math.Abs(a-*b) <= 1e-9*math.Abs(*b)
}
