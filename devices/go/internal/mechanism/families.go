package mechanism

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// symbols: GRR.
type symbols struct{}

func (symbols) coinNames() (first, second []string)        { return []string{"keep"}, []string{"keep"} }
func (symbols) fits(p *Parameters) bool                    { return true }
func (symbols) rowBytes(p *Parameters) int64               { return integerBytes(p.K - 1) }
func (symbols) isMemo(p *Parameters, row []byte) bool      { return integer(row) < p.K }
func (symbols) key(p *Parameters, v, function int64) int64 { return v }
func (symbols) loss(p *Parameters, coins Coins) float64    { return lossOfSymbols(coins, p.K, 1) }
func (symbols) lossOfTwo(p *Parameters, memo, report Coins) float64 {
	return lossOfTwoSymbols(memo, report, p.K)
}
func (symbols) anyValues(p *Parameters, report Coins) float64 {
	return math.Abs(lossOfSymbols(report, p.K, 1))
}
func (symbols) sequence(p *Parameters, memo, report Coins, t float64) float64 {
	return sequenceOfSymbols(memo, report, p.K, t)
}

func (symbols) first(p *Parameters, d *Draws, coins Coins, v, function int64) []byte {
	return putInteger(nil, d.symbol(v, p.K, coins["keep"]), p.RowBytes)
}

func (symbols) second(p *Parameters, d *Draws, memo []byte) []byte {
	return putInteger(nil, d.symbol(integer(memo), p.K, p.Coins["report"]["keep"]), p.RowBytes)
}

// ofSymbols returns the probabilities of one of the symbols near the value and of one of the m-1 others.
func ofSymbols(coins Coins, m int64, width float64) (p, q float64) {
	yes, no := coins["keep"].probabilities()
	return yes / width, no / float64(m-1)
}

func lossOfSymbols(coins Coins, m int64, width float64) float64 {
	p, q := ofSymbols(coins, m, width)
	return math.Log(p / q)
}

func lossOfTwoSymbols(memo, report Coins, m int64) float64 {
	p1, q1 := ofSymbols(memo, m, 1)
	p2, q2 := ofSymbols(report, m, 1)
	n := float64(m)
	return math.Log((p1*p2 + (n-1)*q1*q2) / (p1*q2 + q1*p2 + (n-2)*q1*q2))
}

func sequenceOfSymbols(memo, report Coins, m int64, t float64) float64 {
	p1, q1 := ofSymbols(memo, m, 1)
	p2, q2 := ofSymbols(report, m, 1)
	r, d := p1/q1, math.Pow(q2/p2, t)
	return math.Log1p((r - 1) * (1 - d) / (1 + (r+float64(m)-2)*d))
}

// wave: SW.
type wave struct{ symbols }

func (wave) rowBytes(p *Parameters) int64 { return integerBytes(p.K + p.Width - 2) }
func (wave) fits(p *Parameters) bool      { return p.Width >= 1 && p.Width <= p.K }

func (wave) first(p *Parameters, d *Draws, coins Coins, v, function int64) []byte {
	return putInteger(nil, d.cell(v, p.K, p.Width, coins["keep"]), p.RowBytes)
}

func (wave) loss(p *Parameters, coins Coins) float64 {
	return lossOfSymbols(coins, p.K, float64(p.Width))
}

// hashed: a function and a symbol.
type hashed struct{ symbols }

func (hashed) rowBytes(p *Parameters) int64               { return integerBytes(p.Functions-1) + integerBytes(p.G-1) }
func (hashed) key(p *Parameters, v, function int64) int64 { return p.hash(function, v) }
func (hashed) loss(p *Parameters, coins Coins) float64    { return lossOfSymbols(coins, p.G, 1) }
func (hashed) lossOfTwo(p *Parameters, memo, report Coins) float64 {
	return lossOfTwoSymbols(memo, report, p.G)
}
func (hashed) anyValues(p *Parameters, report Coins) float64 {
	return math.Abs(lossOfSymbols(report, p.G, 1))
}
func (hashed) sequence(p *Parameters, memo, report Coins, t float64) float64 {
	return sequenceOfSymbols(memo, report, p.G, t)
}

func (hashed) fits(p *Parameters) bool {
	return p.K <= mostHashed && p.Functions <= mostSymbols && p.Functions >= p.K && isPower(p.G, p.Digits, p.Functions) &&
		p.Field.has(p.G) && p.Stride >= 1 && p.Stride < p.K && commonFactor(p.Stride, p.K) == 1
}

func (hashed) isMemo(p *Parameters, row []byte) bool {
	size := integerBytes(p.Functions - 1)
	return integer(row[:size]) < p.Functions && integer(row[size:]) < p.G
}

func (hashed) first(p *Parameters, d *Draws, coins Coins, v, function int64) []byte {
	row := putInteger(nil, function, integerBytes(p.Functions-1))
	return putInteger(row, d.symbol(v, p.G, coins["keep"]), integerBytes(p.G-1))
}

func (h hashed) second(p *Parameters, d *Draws, memo []byte) []byte {
	size := integerBytes(p.Functions - 1)
	return h.first(p, d, p.Coins["report"], integer(memo[size:]), integer(memo[:size]))
}

// sets: PS-GRR, a member of a padded set.
type sets struct{ symbols }

func (sets) coinNames() (first, second []string) { return []string{"member"}, []string{"keep"} }
func (sets) fits(p *Parameters) bool             { return p.Choices >= 1 && p.Choices < p.K && p.K <= 60 }

func (sets) first(p *Parameters, d *Draws, coins Coins, v, function int64) []byte {
	return putInteger(nil, d.member(v, p.K, p.Choices, coins["member"]), p.RowBytes)
}

func (sets) chances(p *Parameters, coins Coins) (a, b float64) {
	yes, no := coins["member"].probabilities()
	return yes / float64(p.Choices), no / float64(p.K-p.Choices)
}

func (s sets) loss(p *Parameters, coins Coins) float64 {
	a, b := s.chances(p, coins)
	return math.Log(a / b)
}

func (s sets) lossOfTwo(p *Parameters, memo, report Coins) float64 {
	return s.sequence(p, memo, report, 1)
}

func (s sets) sequence(p *Parameters, memo, report Coins, t float64) float64 {
	a, b := s.chances(p, memo)
	p2, q2 := ofSymbols(report, p.K, 1)
	d := math.Pow(q2/p2, t)
	return math.Log((a + (1-a)*d) / (b + (1-b)*d))
}

// unary: one bit for each value.
type unary struct{}

func (unary) coinNames() (first, second []string) {
	return []string{"one", "zero"}, []string{"one", "zero"}
}
func (unary) fits(p *Parameters) bool                    { return true }
func (unary) rowBytes(p *Parameters) int64               { return (p.K + 7) / 8 }
func (unary) isMemo(p *Parameters, row []byte) bool      { return true }
func (unary) key(p *Parameters, v, function int64) int64 { return v }

func (unary) first(p *Parameters, d *Draws, coins Coins, v, function int64) []byte {
	bits := make([]bool, p.K)
	bits[v] = true
	return packed(d.bits(bits, coins))
}

func (unary) second(p *Parameters, d *Draws, memo []byte) []byte {
	return packed(d.bits(unpacked(memo, p.K), p.Coins["report"]))
}

func (unary) loss(p *Parameters, coins Coins) float64 {
	one, notOne := coins["one"].probabilities()
	zero, notZero := coins["zero"].probabilities()
	return math.Log(one * notZero / (notOne * zero))
}

func (unary) lossOfTwo(p *Parameters, memo, report Coins) float64 {
	p1, n1 := memo["one"].probabilities()
	q1, m1 := memo["zero"].probabilities()
	p2, n2 := report["one"].probabilities()
	q2, m2 := report["zero"].probabilities()
	pr, nr := p1*p2+n1*q2, p1*n2+n1*m2
	qr, mr := q1*p2+m1*q2, q1*n2+m1*m2
	return math.Log(pr * mr / (nr * qr))
}

func (unary) anyValues(p *Parameters, report Coins) float64 {
	one, notOne := report["one"].probabilities()
	zero, notZero := report["zero"].probabilities()
	return float64(p.K) * max(math.Abs(math.Log(one/zero)), math.Abs(math.Log(notZero/notOne)))
}

func (unary) sequence(p *Parameters, memo, report Coins, t float64) float64 {
	p1, n1 := memo["one"].probabilities()
	q1, m1 := memo["zero"].probabilities()
	p2, n2 := report["one"].probabilities()
	q2, m2 := report["zero"].probabilities()
	d, e := math.Pow(q2/p2, t), math.Pow(n2/m2, t)
	return math.Log((p1+n1*d)/(q1+m1*d)) + math.Log((m1+q1*e)/(n1+p1*e))
}

// subset: SS.
type subset struct{ unary }

func (subset) coinNames() (first, second []string) { return []string{"with_value"}, nil }
func (subset) fits(p *Parameters) bool             { return p.Omega >= 1 && p.Omega < p.K }

func (subset) first(p *Parameters, d *Draws, coins Coins, v, function int64) []byte {
	return packed(d.subset(v, p.K, p.Omega, coins["with_value"]))
}

func (subset) loss(p *Parameters, coins Coins) float64 {
	return lossOfSubset(coins, p.K, p.Omega)
}

func lossOfSubset(coins Coins, k, size int64) float64 {
	yes, no := coins["with_value"].probabilities()
	return math.Log((yes / float64(size)) / (no / float64(k-size)))
}

// ones returns the number of ones of a row.
func ones(row []byte) (n int64) {
	for len(row) >= 8 {
		n, row = n+int64(bits.OnesCount64(binary.LittleEndian.Uint64(row))), row[8:]
	}
	return n + int64(bits.OnesCount64(uint64(integer(row))))
}
