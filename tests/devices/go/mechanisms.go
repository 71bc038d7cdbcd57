package ldpdevice

import "encoding/binary"

// mechanisms has the family of every mechanism, and whether it has memos.
var mechanisms = map[string]kind{
	"GRR": {symbols{}, false}, "L-GRR": {symbols{}, true}, "SW": {wave{}, false},
	"SUE": {unary{}, false}, "OUE": {unary{}, false}, "THE": {unary{}, false},
	"L-SUE": {unary{}, true}, "L-OSUE": {unary{}, true}, "L-SOUE": {unary{}, true}, "L-OUE": {unary{}, true},
	"BLH": {hashed{}, false}, "OLH": {hashed{}, false}, "L-BLH": {hashed{}, true}, "L-OLH": {hashed{}, true},
	"SS": {subset{}, false}, "L-SS": {subsets{}, true},
	"PS-GRR": {sets{}, false}, "L-PS-GRR": {sets{}, true},
}

type kind struct {
	family
	memoized bool
}

// coinSet has the coins of one round by name.
type coinSet = map[string]Coin

// family has the parameters, draws and losses of mechanisms. The first round draws a memo, or the report of a one-time mechanism;
// the second round draws a report from a memo.
type family interface {
	coinNames() (first, second []string)
	fits(p *Parameters) bool // whether the family's own parameters are valid
	rowBytes(p *Parameters) int64
	key(p *Parameters, v, function int64) int64 // of value v's memo
	first(p *Parameters, d Draws, coins coinSet, v, function int64) []byte
	second(p *Parameters, d Draws, memo []byte) []byte
	loss(p *Parameters, coins coinSet) float64             // of the first round, in nats
	lossOfTwo(p *Parameters, memo, report coinSet) float64 // of one report of a memo, in nats
}

func (k kind) hasCoins(coins map[string]coinSet) bool {
	first, second := k.coinNames()
	rounds := map[string][]string{"report": first}
	if k.memoized {
		rounds = map[string][]string{"memo": first, "report": second}
	}
	if len(coins) != len(rounds) {
		return false
	}
	for round, names := range rounds {
		if len(coins[round]) != len(names) {
			return false
		}
		for _, name := range names {
			coin, ok := coins[round][name]
			if !ok || (len(coin.digits) > 0 && coin.digits[0] > 0x80) { // the digits must state the smaller probability
				return false
			}
		}
	}
	return true
}

// losses returns the loss of the memo (memoized mechanisms only) and of one report, in nats.
func (k kind) losses(p *Parameters) (memo, report float64) {
	if !k.memoized {
		return 0, k.loss(p, p.Coins["report"])
	}
	return k.loss(p, p.Coins["memo"]), k.lossOfTwo(p, p.Coins["memo"], p.Coins["report"])
}

// once draws the row of a one-time mechanism from value v.
func (p *Parameters) once(d Draws, v int64) []byte {
	function, k := int64(0), mechanisms[p.Mechanism]
	if p.Functions > 0 {
		function = d.below(p.Functions)
	}
	return k.first(p, d, p.Coins["report"], k.key(p, v, function), function)
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

func packed(bits []bool) []byte {
	row := make([]byte, (len(bits)+7)/8)
	for i, bit := range bits {
		if bit {
			row[i/8] |= 1 << (i % 8)
		}
	}
	return row
}

func unpacked(row []byte, k int64) []bool {
	bits := make([]bool, k)
	for i := range bits {
		bits[i] = row[i/8]>>(i%8)&1 == 1
	}
	return bits
}
