package state

import (
	"bytes"
	"encoding/json"
	"reflect"

	"ldpstream/device/internal/fault"
)

const format = 1

type document struct {
	Kind    string          `json:"kind"`
	Format  int64           `json:"format"`
	Content json.RawMessage `json:"content"`
}

// Content is what a store keeps: a *State or a *Log.
type Content interface {
	kind() string
	complete() bool // no list or map is null
}

func (*State) kind() string { return "a device or wallet" }
func (*Log) kind() string   { return "an activity log" }

// Decode reads a store's text into an empty document. The errors name the place.
func Decode(text []byte, place string, into Content) error {
	var read document
	damaged := fault.New(fault.Store, "%s: the file is damaged", place)
	if json.Unmarshal(text, &read) != nil || read.Kind == "" {
		return damaged
	}
	if read.Kind != into.kind() {
		return fault.New(fault.Store, "%s: the file of %q, expected that of %s", place, read.Kind, into.kind())
	}
	if read.Format > format {
		return fault.New(fault.Store, "%s: the file has the later format %d, expected %d", place, read.Format, format)
	}
	if json.Unmarshal(read.Content, into) != nil || !into.complete() || !sameDocument(text, Encode(into)) {
		return damaged
	}
	return nil
}

// Encode returns a store's text.
func Encode(content Content) []byte {
	inner, err := json.Marshal(content)
	if err != nil {
		panic(err) // the content has texts, finite numbers and lists only
	}
	text, err := json.Marshal(document{content.kind(), format, inner})
	if err != nil {
		panic(err)
	}
	return text
}

// sameDocument tells whether two texts are the same JSON: a text without a key, or with another one, is not what a device wrote.
func sameDocument(one, other []byte) bool {
	if bytes.Equal(one, other) {
		return true
	}
	var a, b any
	return json.Unmarshal(one, &a) == nil && json.Unmarshal(other, &b) == nil && reflect.DeepEqual(a, b)
}

func (s *State) complete() bool {
	if s.Surveys == nil || s.Consents == nil {
		return false
	}
	for _, answers := range s.Consents {
		if answers == nil {
			return false
		}
	}
	for _, enrolled := range s.Surveys {
		if enrolled == nil || enrolled.Attributes == nil || enrolled.Journal == nil {
			return false
		}
		for _, one := range enrolled.Attributes {
			if one == nil || one.Memos == nil || one.Kept == nil || one.Dropped == nil {
				return false
			}
		}
	}
	return true
}

func (l *Log) complete() bool {
	if l.Days == nil {
		return false
	}
	for _, events := range l.Days {
		if events == nil {
			return false
		}
	}
	return true
}
