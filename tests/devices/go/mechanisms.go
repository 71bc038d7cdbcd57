package ldpdevice

import (
	"encoding/binary"
	"math"
)

type shape int

const (
	symbols shape = iota // GRR
	unary                // one bit for each value
	hashed               // a function and a symbol
	subset               // SS
	wave                 // SW
	sets                 // PS-GRR
)

type kind struct {
	shape    shape
	memoized bool
}

var mechanisms = map[string]kind{
	"GRR": {symbols, false}, "L-GRR": {symbols, true},
	"SUE": {unary, false}, "OUE": {unary, false}, "THE": {unary, false},
	"L-SUE": {unary, true}, "L-OSUE": {unary, true}, "L-SOUE": {unary, true}, "L-OUE": {unary, true},
	"BLH": {hashed, false}, "OLH": {hashed, false}, "L-BLH": {hashed, true}, "L-OLH": {hashed, true},
	"SS": {subset, false}, "SW": {wave, false},
	"PS-GRR": {sets, false}, "L-PS-GRR": {sets, true},
}

// coinNames returns the names of the coins of a round, "memo" or "report".
func (k kind) coinNames(round string) []string {
	switch k.shape {
	case sets:
		if !k.memoized || round == "memo" {
			return []string{"member"}
		}
	case unary:
		return []string{"one", "zero"}
	case subset:
		return []string{"with_value"}
	}
	return []string{"keep"}
}

func (k kind) hasCoins(coins map[string]map[string]Coin) bool {
	rounds := []string{"report"}
	if k.memoized {
		rounds = []string{"memo", "report"}
	}
	if len(coins) != len(rounds) {
		return false
	}
	for _, round := range rounds {
		if len(coins[round]) != len(k.coinNames(round)) {
			return false
		}
		for _, name := range k.coinNames(round) {
			coin, ok := coins[round][name]
			if !ok || (len(coin.digits) > 0 && coin.digits[0] > 0x80) { // the digits must state the smaller probability
				return false
			}
		}
	}
	return true
}

// losses returns the loss of the memo (memoized mechanisms only) and of one report, in nats.
func (p *Parameters) losses(kind kind) (memo, report float64) {
	second := p.Coins["report"]
	if kind.shape == subset {
		yes, no := second["with_value"].probabilities()
		return 0, math.Log((yes / float64(p.Omega)) / (no / float64(p.K-p.Omega)))
	}
	if kind.shape == unary {
		p2, n2 := second["one"].probabilities()
		q2, m2 := second["zero"].probabilities()
		if !kind.memoized {
			return 0, math.Log(p2 * m2 / (n2 * q2))
		}
		p1, n1 := p.Coins["memo"]["one"].probabilities()
		q1, m1 := p.Coins["memo"]["zero"].probabilities()
		pr, nr := p1*p2+n1*q2, p1*n2+n1*m2
		qr, mr := q1*p2+m1*q2, q1*n2+m1*m2
		return math.Log(p1 * m1 / (n1 * q1)), math.Log(pr * mr / (nr * qr))
	}
	if kind.shape == sets {
		coin := second["member"]
		if kind.memoized {
			coin = p.Coins["memo"]["member"]
		}
		yes, no := coin.probabilities()
		a, b := yes/float64(p.Choices), no/float64(p.K-p.Choices)
		if !kind.memoized {
			return 0, math.Log(a / b)
		}
		yes, no = second["keep"].probabilities()
		p2, q2 := yes, no/float64(p.K-1)
		return math.Log(a / b), math.Log((a*p2 + (1-a)*q2) / (b*p2 + (1-b)*q2))
	}
	m, width := float64(p.K), 1.0
	if kind.shape == hashed {
		m = float64(p.G)
	}
	if kind.shape == wave {
		width = float64(p.Width)
	}
	yes, no := second["keep"].probabilities()
	p2, q2 := yes/width, no/(m-1)
	if !kind.memoized {
		return 0, math.Log(p2 / q2)
	}
	yes, no = p.Coins["memo"]["keep"].probabilities()
	p1, q1 := yes, no/(m-1)
	return math.Log(p1 / q1), math.Log((p1*p2 + (m-1)*q1*q2) / (p1*q2 + q1*p2 + (m-2)*q1*q2))
}

func integerBytes(largest int64) int64 {
	if largest < 1<<8 {
		return 1
	}
	if largest < 1<<16 {
		return 2
	}
	return 4
}

func (p *Parameters) rowBytes() int64 {
	switch mechanisms[p.Mechanism].shape {
	case symbols, sets:
		return integerBytes(p.K - 1)
	case wave:
		return integerBytes(p.K + p.Width - 2)
	case hashed:
		return integerBytes(p.Functions-1) + integerBytes(p.G-1)
	}
	return (p.K + 7) / 8
}

func putInteger(row []byte, number, size int64) []byte {
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], uint64(number))
	return append(row, all[:size]...)
}

func integer(row []byte) int64 {
	var all [8]byte
	copy(all[:], row)
	return int64(binary.LittleEndian.Uint64(all[:]))
}

func (p *Parameters) hashedRow(function, symbol int64) []byte {
	return putInteger(putInteger(nil, function, integerBytes(p.Functions-1)), symbol, integerBytes(p.G-1))
}

func ones(bits []bool) []byte {
	row := make([]byte, (len(bits)+7)/8)
	for i, bit := range bits {
		if bit {
			row[i/8] |= 1 << (i % 8)
		}
	}
	return row
}

// memoKey returns the key of value v's memo.
func (p *Parameters) memoKey(v, function int64) int64 {
	if mechanisms[p.Mechanism].shape == hashed {
		return p.hash(function, v)
	}
	return v
}

// first draws the row of the first round, or of the only round, from the value or memo key v.
func (p *Parameters) first(d Draws, coins map[string]Coin, v, function int64) []byte {
	switch mechanisms[p.Mechanism].shape {
	case unary:
		bits := make([]bool, p.K)
		bits[v] = true
		return ones(d.bits(bits, coins))
	case hashed:
		return p.hashedRow(function, d.symbol(v, p.G, coins["keep"]))
	case subset:
		return ones(d.subset(v, p.K, p.Omega, coins["with_value"]))
	case sets:
		return putInteger(nil, d.member(v, p.K, p.Choices, coins["member"]), p.RowBytes)
	case wave:
		return putInteger(nil, d.cell(v, p.K, p.Width, coins["keep"]), p.RowBytes)
	}
	return putInteger(nil, d.symbol(v, p.K, coins["keep"]), p.RowBytes)
}

// second draws the row of the second round from the memo.
func (p *Parameters) second(d Draws, memo []byte) []byte {
	coins := p.Coins["report"]
	switch mechanisms[p.Mechanism].shape {
	case unary:
		bits := make([]bool, p.K)
		for i := range bits {
			bits[i] = memo[i/8]>>(i%8)&1 == 1
		}
		return ones(d.bits(bits, coins))
	case hashed:
		size := integerBytes(p.Functions - 1)
		return p.hashedRow(integer(memo[:size]), d.symbol(integer(memo[size:]), p.G, coins["keep"]))
	}
	return putInteger(nil, d.symbol(integer(memo), p.K, coins["keep"]), p.RowBytes)
}

// once draws the row of a one-time mechanism from value v.
func (p *Parameters) once(d Draws, v int64) []byte {
	function := int64(0)
	if mechanisms[p.Mechanism].shape == hashed {
		function = d.below(p.Functions)
		v = p.hash(function, v)
	}
	return p.first(d, p.Coins["report"], v, function)
}
