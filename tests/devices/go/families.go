package ldpdevice

import (
	"encoding/hex"
	"math"
	"math/big"
)

// symbols: GRR.
type symbols struct{}

func (symbols) coinNames() (first, second []string)        { return []string{"keep"}, []string{"keep"} }
func (symbols) fits(p *Parameters) bool                    { return true }
func (symbols) rowBytes(p *Parameters) int64               { return integerBytes(p.K - 1) }
func (symbols) key(p *Parameters, v, function int64) int64 { return v }
func (symbols) loss(p *Parameters, coins coinSet) float64  { return lossOfSymbols(coins, p.K, 1) }
func (symbols) lossOfTwo(p *Parameters, memo, report coinSet) float64 {
	return lossOfTwoSymbols(memo, report, p.K)
}

func (symbols) first(p *Parameters, d Draws, coins coinSet, v, function int64) []byte {
	return putInteger(nil, d.symbol(v, p.K, coins["keep"]), p.RowBytes)
}

func (symbols) second(p *Parameters, d Draws, memo []byte) []byte {
	return putInteger(nil, d.symbol(integer(memo), p.K, p.Coins["report"]["keep"]), p.RowBytes)
}

// ofSymbols returns the probabilities of one of the symbols near the value and of one of the m-1 others.
func ofSymbols(coins coinSet, m int64, width float64) (p, q float64) {
	yes, no := coins["keep"].probabilities()
	return yes / width, no / float64(m-1)
}

func lossOfSymbols(coins coinSet, m int64, width float64) float64 {
	p, q := ofSymbols(coins, m, width)
	return math.Log(p / q)
}

func lossOfTwoSymbols(memo, report coinSet, m int64) float64 {
	p1, q1 := ofSymbols(memo, m, 1)
	p2, q2 := ofSymbols(report, m, 1)
	n := float64(m)
	return math.Log((p1*p2 + (n-1)*q1*q2) / (p1*q2 + q1*p2 + (n-2)*q1*q2))
}

// wave: SW.
type wave struct{ symbols }

func (wave) rowBytes(p *Parameters) int64 { return integerBytes(p.K + p.Width - 2) }

func (wave) fits(p *Parameters) bool {
	return p.Width >= 1 && p.Width <= p.K
}

func (wave) first(p *Parameters, d Draws, coins coinSet, v, function int64) []byte {
	return putInteger(nil, d.cell(v, p.K, p.Width, coins["keep"]), p.RowBytes)
}

func (wave) loss(p *Parameters, coins coinSet) float64 {
	return lossOfSymbols(coins, p.K, float64(p.Width))
}

// hashed: a function and a symbol.
type hashed struct{ symbols }

func (hashed) rowBytes(p *Parameters) int64               { return integerBytes(p.Functions-1) + integerBytes(p.G-1) }
func (hashed) key(p *Parameters, v, function int64) int64 { return p.hash(function, v) }
func (hashed) loss(p *Parameters, coins coinSet) float64  { return lossOfSymbols(coins, p.G, 1) }
func (hashed) lossOfTwo(p *Parameters, memo, report coinSet) float64 {
	return lossOfTwoSymbols(memo, report, p.G)
}

func (hashed) fits(p *Parameters) bool {
	return p.Field.has(p.G) && isPower(p.G, p.Digits, p.Functions) && p.Functions >= p.K &&
		p.Stride >= 1 && p.Stride < p.K && commonFactor(p.Stride, p.K) == 1
}

func (hashed) first(p *Parameters, d Draws, coins coinSet, v, function int64) []byte {
	row := putInteger(nil, function, integerBytes(p.Functions-1))
	return putInteger(row, d.symbol(v, p.G, coins["keep"]), integerBytes(p.G-1))
}

func (h hashed) second(p *Parameters, d Draws, memo []byte) []byte {
	size := integerBytes(p.Functions - 1)
	return h.first(p, d, p.Coins["report"], integer(memo[size:]), integer(memo[:size]))
}

// sets: PS-GRR.
type sets struct{ symbols }

func (sets) coinNames() (first, second []string) { return []string{"member"}, []string{"keep"} }

func (sets) first(p *Parameters, d Draws, coins coinSet, v, function int64) []byte {
	return putInteger(nil, d.member(v, p.K, p.Choices, coins["member"]), p.RowBytes)
}

func (sets) chances(p *Parameters, coins coinSet) (a, b float64) {
	yes, no := coins["member"].probabilities()
	return yes / float64(p.Choices), no / float64(p.K-p.Choices)
}

func (s sets) loss(p *Parameters, coins coinSet) float64 {
	a, b := s.chances(p, coins)
	return math.Log(a / b)
}

func (s sets) lossOfTwo(p *Parameters, memo, report coinSet) float64 {
	a, b := s.chances(p, memo)
	p2, q2 := ofSymbols(report, p.K, 1)
	return math.Log((a*p2 + (1-a)*q2) / (b*p2 + (1-b)*q2))
}

// unary: one bit for each value.
type unary struct{}

func (unary) coinNames() (first, second []string) {
	return []string{"one", "zero"}, []string{"one", "zero"}
}
func (unary) fits(p *Parameters) bool                    { return true }
func (unary) rowBytes(p *Parameters) int64               { return (p.K + 7) / 8 }
func (unary) key(p *Parameters, v, function int64) int64 { return v }

func (unary) first(p *Parameters, d Draws, coins coinSet, v, function int64) []byte {
	bits := make([]bool, p.K)
	bits[v] = true
	return packed(d.bits(bits, coins))
}

func (unary) second(p *Parameters, d Draws, memo []byte) []byte {
	return packed(d.bits(unpacked(memo, p.K), p.Coins["report"]))
}

func (unary) loss(p *Parameters, coins coinSet) float64 {
	one, notOne := coins["one"].probabilities()
	zero, notZero := coins["zero"].probabilities()
	return math.Log(one * notZero / (notOne * zero))
}

func (unary) lossOfTwo(p *Parameters, memo, report coinSet) float64 {
	p1, n1 := memo["one"].probabilities()
	q1, m1 := memo["zero"].probabilities()
	p2, n2 := report["one"].probabilities()
	q2, m2 := report["zero"].probabilities()
	pr, nr := p1*p2+n1*q2, p1*n2+n1*m2
	qr, mr := q1*p2+m1*q2, q1*n2+m1*m2
	return math.Log(pr * mr / (nr * qr))
}

// subset: SS.
type subset struct{ unary }

func (subset) coinNames() (first, second []string) { return []string{"with_value"}, nil }

func (subset) fits(p *Parameters) bool {
	return p.Omega >= 1 && p.Omega < p.K
}

func (subset) first(p *Parameters, d Draws, coins coinSet, v, function int64) []byte {
	return packed(d.subset(v, p.K, p.Omega, coins["with_value"]))
}

func (subset) loss(p *Parameters, coins coinSet) float64 {
	yes, no := coins["with_value"].probabilities()
	return math.Log((yes / float64(p.Omega)) / (no / float64(p.K-p.Omega)))
}

// subsets: L-SS, a memo of MemoSize values and a report of Omega values.
type subsets struct{ unary }

func (subsets) coinNames() (first, second []string) { return []string{"with_value"}, nil }

func (subsets) fits(p *Parameters) bool {
	most := p.K / 2
	return p.K <= 1024 && p.MemoSize >= 1 && p.MemoSize <= most && p.Omega >= 1 && p.Omega <= most && p.Odds != nil && p.weights() != nil
}

func (subsets) first(p *Parameters, d Draws, coins coinSet, v, function int64) []byte {
	return packed(d.subset(v, p.K, p.MemoSize, coins["with_value"]))
}

func (subsets) second(p *Parameters, d Draws, memo []byte) []byte {
	return packed(d.overlap(unpacked(memo, p.K), p.Omega, p.weights()))
}

func (subsets) loss(p *Parameters, coins coinSet) float64 {
	yes, no := coins["with_value"].probabilities()
	return math.Log((yes / float64(p.MemoSize)) / (no / float64(p.K-p.MemoSize)))
}

// Odds say that a report with one more value of its memo is Numerator / 2^Shift times as likely.
type Odds struct {
	Numerator string `json:"numerator"`
	Shift     int64  `json:"shift"`
}

// log returns the logarithm, or NaN if the odds are not above 1.
func (o Odds) log() float64 {
	digits, err := hex.DecodeString(o.Numerator)
	one := new(big.Int).Lsh(big.NewInt(1), uint(max(o.Shift, 0)))
	numerator := new(big.Int).SetBytes(digits)
	if err != nil || o.Shift < 0 || o.Shift > 128 || len(digits) == 0 || digits[0] == 0 || numerator.Cmp(one) <= 0 {
		return math.NaN()
	}
	above, _ := new(big.Rat).SetFrac(numerator.Sub(numerator, one), one).Float64()
	return math.Log1p(above)
}

// weights returns the cumulated weights of the overlaps, or nil if the odds are not valid.
func (p *Parameters) weights() []*big.Int {
	common := min(p.MemoSize, p.Omega)
	if p.cumulated != nil || math.IsNaN(p.Odds.log()) || int64(4*len(p.Odds.Numerator)-8)*common >= 65536 {
		return p.cumulated
	}
	numerator, _ := new(big.Int).SetString(p.Odds.Numerator, 16)
	sum := new(big.Int)
	for j := range common + 1 {
		weight := new(big.Int).Exp(numerator, big.NewInt(j), nil)
		weight.Lsh(weight, uint(p.Odds.Shift*(common-j)))
		weight.Mul(weight, new(big.Int).Binomial(p.MemoSize, j))
		weight.Mul(weight, new(big.Int).Binomial(p.K-p.MemoSize, p.Omega-j))
		sum = new(big.Int).Add(sum, weight)
		p.cumulated = append(p.cumulated, sum)
	}
	if sum.BitLen() > 65536 {
		p.cumulated = nil
	}
	return p.cumulated
}

func (s subsets) lossOfTwo(p *Parameters, memo, report coinSet) float64 {
	k, m, omega := float64(p.K), float64(p.MemoSize), float64(p.Omega)
	logs := []float64{0}
	for j := 0.0; j < min(m, omega); j++ {
		step := math.Log((m - j) * (omega - j) / ((j + 1) * (k - m - omega + j + 1)))
		logs = append(logs, logs[int(j)]+p.Odds.log()+step)
	}
	largest := math.Inf(-1)
	for _, l := range logs {
		largest = max(largest, l)
	}
	mean, missing, sum := 0.0, 0.0, 0.0
	for j, l := range logs {
		chance := math.Exp(l - largest)
		mean, missing, sum = mean+float64(j)*chance, missing+(m-float64(j))*chance, sum+chance
	}
	yes, no := memo["with_value"].probabilities()
	a, notA, b := mean/sum/m, missing/sum/m, (omega-mean/sum)/(k-m)
	return math.Log(((yes*a + no*b) / omega) / ((yes*notA + no*(1-b)) / (k - omega)))
}
