package send

import (
	"encoding/binary"
	"net/http"
	"strings"
)

// Binary HTTP messages of known length (RFC 9292).

// part adds a part with its length, a variable-length integer (RFC 9000).
func part(message []byte, data string) []byte {
	switch length := len(data); {
	case length < 1<<6:
		message = append(message, byte(length))
	case length < 1<<14:
		message = binary.BigEndian.AppendUint16(message, uint16(length)|1<<14)
	default:
		message = binary.BigEndian.AppendUint32(message, uint32(length)|1<<31)
	}
	return append(message, data...)
}

// binaryRequest packs a request with fields in order, each a name and a value.
func binaryRequest(scheme, authority, path string, fields [][2]string, content []byte) []byte {
	message, named := []byte{0}, []byte{} // 0: a request
	for _, text := range []string{http.MethodPost, scheme, authority, path} {
		message = part(message, text)
	}
	for _, field := range fields {
		named = part(part(named, field[0]), field[1])
	}
	message = part(part(message, string(named)), string(content))
	return append(message, 0) // no trailers
}

// reader reads a message; bad after its end.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) number() uint64 {
	if len(r.rest) == 0 || len(r.rest) < 1<<(r.rest[0]>>6) {
		r.bad = true
		return 0
	}
	size := 1 << (r.rest[0] >> 6)
	n := uint64(r.rest[0] & 0x3f)
	for _, b := range r.rest[1:size] {
		n = n<<8 | uint64(b)
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) part() []byte {
	size := r.number()
	if size > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	taken := r.rest[:size]
	r.rest = r.rest[size:]
	return taken
}

// binaryResponse reads a response.
func binaryResponse(message []byte) (status int, header http.Header, content []byte, ok bool) {
	all := &reader{rest: message}
	kind, code := all.number(), all.number()
	fields := &reader{rest: all.part()}
	header = http.Header{}
	for len(fields.rest) > 0 && !fields.bad {
		name := string(fields.part())
		header.Set(name, strings.TrimSpace(string(fields.part())))
	}
	if len(all.rest) > 0 {
		content = all.part()
	}
	ok = !all.bad && !fields.bad && kind == 1 && code >= 200 && code < 600
	return int(code), header, content, ok
}
