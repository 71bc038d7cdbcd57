package ldpdevice

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

// Seal packs n rows of an attribute, level and step into an envelope. The cohort is nil for a survey without cohorts.
func Seal(fingerprint [8]byte, attribute, level int, step int64, n int, cohort *int, rows []byte) []byte {
	head := []byte{0x97, 1}
	if cohort != nil {
		head[0]++
	}
	out := packBytes(head, fingerprint[:])
	out = packInteger(packInteger(packInteger(out, uint64(attribute)), uint64(level)), uint64(step))
	out = packInteger(out, uint64(n))
	if cohort != nil {
		out = packInteger(out, uint64(*cohort))
	}
	return packBytes(out, rows)
}
