package mechanism

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
)

// Stated is what the canonical text and the parameters both state. Zero stands for an absent number.
type Stated struct {
	Mechanism       string `json:"mechanism"`
	RowBytes        int64  `json:"row_bytes"`
	EverySteps      *int64 `json:"every_steps"`
	LifetimeReports *int64 `json:"lifetime_reports"`
	G               int64  `json:"g"`
	Functions       int64  `json:"functions"`
	Digits          int64  `json:"digits"`
	Stride          int64  `json:"stride"`
	Field           Field  `json:"field"`
	Omega           int64  `json:"omega"`
	MemoSize        int64  `json:"memo_size"`
	Width           int64  `json:"width"`
	Choices         int64  `json:"choices"`
}

// Parameters of one attribute and level. They can draw after Check.
type Parameters struct {
	Stated
	K     int64            `json:"k"`
	Odds  *Odds            `json:"odds"`
	Coins map[string]Coins `json:"coins"`

	kind
	cumulated []*big.Int // of L-SS
}

type kind struct {
	family
	memoized bool
}

// kinds has the family of every mechanism, and whether it has memos.
var kinds = map[string]kind{
	"GRR": {symbols{}, false}, "L-GRR": {symbols{}, true}, "SW": {wave{}, false},
	"SUE": {unary{}, false}, "OUE": {unary{}, false}, "THE": {unary{}, false},
	"L-SUE": {unary{}, true}, "L-OSUE": {unary{}, true}, "L-SOUE": {unary{}, true}, "L-OUE": {unary{}, true},
	"BLH": {hashed{}, false}, "OLH": {hashed{}, false}, "L-BLH": {hashed{}, true}, "L-OLH": {hashed{}, true},
	"SS": {subset{}, false}, "L-SS": {subsets{}, true},
	"PS-GRR": {sets{}, false}, "L-PS-GRR": {sets{}, true},
}

const (
	mostSymbols  = 1 << 32 // a row has at most 4 bytes for a symbol
	mostHashed   = 1 << 24
	mostRowBytes = 1_000_000
)

// family has the draws and losses of mechanisms. The first round draws a memo, or the report of a one-time mechanism; the second
// round draws a report from a memo.
type family interface {
	coinNames() (first, second []string)
	fits(p *Parameters) bool // whether the family's own parameters are valid
	rowBytes(p *Parameters) int64
	isMemo(p *Parameters, row []byte) bool // for a row of the right length
	key(p *Parameters, v, function int64) int64
	first(p *Parameters, d *Draws, coins Coins, v, function int64) []byte
	second(p *Parameters, d *Draws, memo []byte) []byte
	loss(p *Parameters, coins Coins) float64             // of the first round, in nats
	lossOfTwo(p *Parameters, memo, report Coins) float64 // of one report of a memo, in nats
	anyValues(p *Parameters, report Coins) float64       // of one report of any memo, in nats
	sequence(p *Parameters, memo, report Coins, t float64) float64
}

// ErrUnknown means that a mechanism has another name than those that this device knows.
var ErrUnknown = errors.New("the mechanism is unknown")

// Check makes the checks that need no canonical text. The attribute has k values.
func (p *Parameters) Check(k int64) error {
	found, known := kinds[p.Mechanism]
	if !known {
		return ErrUnknown
	}
	p.kind = found
	switch {
	case p.K != k || k < 2 || k > mostSymbols:
		return errors.New("another number of values")
	case p.Every() < 1 || p.LifetimeReports != nil && *p.LifetimeReports < 1:
		return errors.New("every_steps or lifetime_reports")
	case !p.fits(p):
		return errors.New("a parameter of the mechanism")
	case p.RowBytes != p.rowBytes(p) || p.RowBytes > mostRowBytes:
		return errors.New("row_bytes")
	case !p.hasCoins():
		return errors.New("other coins")
	}
	return nil
}

func (p *Parameters) hasCoins() bool {
	first, second := p.coinNames()
	rounds := map[string][]string{"report": first}
	if p.memoized {
		rounds = map[string][]string{"memo": first, "report": second}
	}
	if len(p.Coins) != len(rounds) {
		return false
	}
	for round, names := range rounds {
		if len(p.Coins[round]) != len(names) {
			return false
		}
		for _, name := range names {
			if coin, ok := p.Coins[round][name]; !ok || !coin.valid() {
				return false
			}
		}
	}
	return true
}

// Every returns the number of steps between two reports.
func (p *Parameters) Every() int64 {
	if p.EverySteps == nil {
		return 1
	}
	return *p.EverySteps
}

// Memoized tells whether the mechanism has memos.
func (p *Parameters) Memoized() bool { return p.memoized }

// OfSets tells whether a person's value is a set.
func (p *Parameters) OfSets() bool { _, of := p.family.(sets); return of }

// MemoKey returns the key of a value's memo: local hashing has one memo for each symbol.
func (p *Parameters) MemoKey(v, function int64) int64 { return p.key(p, v, function) }

// Once draws the row of a one-time mechanism.
func (p *Parameters) Once(d *Draws, v int64) []byte {
	function := int64(0)
	if p.Functions > 0 {
		function = d.Below(p.Functions)
	}
	return p.first(p, d, p.Coins["report"], p.key(p, v, function), function)
}

// Memo draws the memo of a memo key.
func (p *Parameters) Memo(d *Draws, key, function int64) []byte {
	return p.first(p, d, p.Coins["memo"], key, function)
}

// FromMemo draws a report from a memo.
func (p *Parameters) FromMemo(d *Draws, memo []byte) []byte { return p.second(p, d, memo) }

// IsMemo tells whether a row can be a memo.
func (p *Parameters) IsMemo(row []byte) bool {
	return int64(len(row)) == p.RowBytes && p.isMemo(p, row)
}

// Losses returns the loss of the memo (0 without memos) and of one report of an unchanged value, in nats. They can be negative or
// NaN for coins that no service makes.
func (p *Parameters) Losses() (memo, report float64) {
	if !p.memoized {
		return 0, p.loss(p, p.Coins["report"])
	}
	return p.loss(p, p.Coins["memo"]), p.lossOfTwo(p, p.Coins["memo"], p.Coins["report"])
}

// AnyValues returns the loss of one report between any two values and histories, in nats.
func (p *Parameters) AnyValues() float64 {
	if !p.memoized {
		return math.Abs(p.loss(p, p.Coins["report"]))
	}
	return p.anyValues(p, p.Coins["report"])
}

// EpsT returns the loss of t reports if the value never changed, in nats.
func (p *Parameters) EpsT(t int64) float64 {
	switch {
	case !p.memoized:
		return float64(t) * p.AnyValues()
	case t == 0:
		return 0
	}
	return p.sequence(p, p.Coins["memo"], p.Coins["report"], float64(t))
}

// ReportsIn returns the largest number of reports in a number of steps; infinite without a limit.
func (p *Parameters) ReportsIn(steps float64) float64 {
	most := math.Inf(1)
	if p.LifetimeReports != nil {
		most = float64(*p.LifetimeReports)
	}
	return min(math.Ceil(steps/float64(p.Every())), most)
}

// integerBytes returns the smallest size of 1, 2 and 4 bytes that can store a number.
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
