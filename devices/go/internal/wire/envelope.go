// Package wire packs and splits envelopes: see docs/reference/wire_format.md.
package wire

import "encoding/binary"

func packInteger(out []byte, n uint64) []byte {
	switch {
	case n < 1<<7:
		return append(out, byte(n))
	case n < 1<<8:
		return append(out, 0xcc, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(out, 0xcd), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(out, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(out, 0xcf), n)
}

func packBytes(out, text []byte) []byte {
	switch n := len(text); {
	case n < 1<<8:
		out = append(out, 0xc4, byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0xc5), uint16(n))
	default:
		out = binary.BigEndian.AppendUint32(append(out, 0xc6), uint32(n))
	}
	return append(out, text...)
}

// Head is what an envelope says about its rows. The cohort is nil for a survey without cohorts.
type Head struct {
	Fingerprint      [8]byte
	Attribute, Level int
	Step             uint64
	Cohort           *int
}

// Seal packs n rows of an attribute, level and step into an envelope.
func Seal(head Head, n int, rows []byte) []byte {
	out := []byte{0x97, 1}
	if head.Cohort != nil {
		out[0]++
	}
	out = packBytes(out, head.Fingerprint[:])
	out = packInteger(packInteger(packInteger(out, uint64(head.Attribute)), uint64(head.Level)), head.Step)
	out = packInteger(out, uint64(n))
	if head.Cohort != nil {
		out = packInteger(out, uint64(*head.Cohort))
	}
	return packBytes(out, rows)
}

// Split returns the elements of an envelope after its first byte, each in its msgpack form.
func Split(envelope []byte) (parts [][]byte) {
	for rest := envelope[1:]; len(rest) > 0; {
		size := 1
		switch rest[0] {
		case 0xcc:
			size = 2
		case 0xcd:
			size = 3
		case 0xce:
			size = 5
		case 0xcf:
			size = 9
		case 0xc4:
			size = 2 + int(rest[1])
		case 0xc5:
			size = 3 + int(binary.BigEndian.Uint16(rest[1:]))
		case 0xc6:
			size = len(rest)
		}
		parts, rest = append(parts, rest[:size]), rest[size:]
	}
	return parts
}

// Number returns the number of an element that is an integer.
func Number(part []byte) (n uint64) {
	if len(part) > 1 {
		part = part[1:]
	}
	for _, b := range part {
		n = n<<8 | uint64(b)
	}
	return n
}
