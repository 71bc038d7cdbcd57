package mechanism

import (
	"encoding/hex"
	"math"
	"math/big"
)

const (
	mostOverlapValues = 1024
	mostWeightBits    = 65536
	mostShift         = 128
)

// Odds say that a report with one more value of its memo is Numerator / 2^Shift times as likely.
type Odds struct {
	Numerator string `json:"numerator"`
	Shift     int64  `json:"shift"`
}

// LogOdds returns ln θ of L-SS, or NaN if there are no valid odds.
func (p *Parameters) LogOdds() float64 {
	if p.Odds == nil || p.Odds.Shift < 0 || p.Odds.Shift > mostShift {
		return math.NaN()
	}
	digits, err := hex.DecodeString(p.Odds.Numerator)
	one := new(big.Int).Lsh(big.NewInt(1), uint(p.Odds.Shift))
	numerator := new(big.Int).SetBytes(digits)
	if err != nil || numerator.Cmp(one) <= 0 {
		return math.NaN()
	}
	above, _ := new(big.Rat).SetFrac(numerator.Sub(numerator, one), one).Float64()
	return math.Log1p(above)
}

// subsets: L-SS, a memo of MemoSize values and a report of Omega values.
type subsets struct{ unary }

func (subsets) coinNames() (first, second []string) { return []string{"with_value"}, nil }

func (subsets) fits(p *Parameters) bool {
	most := p.K / 2
	sized := p.K <= mostOverlapValues && p.MemoSize >= 1 && p.MemoSize <= most && p.Omega >= 1 && p.Omega <= most
	if !sized || len(p.Odds.numerator()) > mostWeightBits/4 || math.IsNaN(p.LogOdds()) {
		return false
	}
	p.cumulated = p.weights()
	return p.cumulated != nil
}

func (o *Odds) numerator() string {
	if o == nil {
		return ""
	}
	return o.Numerator
}

func (subsets) isMemo(p *Parameters, row []byte) bool { return ones(row) == p.MemoSize }

func (subsets) first(p *Parameters, d *Draws, coins Coins, v, function int64) []byte {
	return packed(d.subset(v, p.K, p.MemoSize, coins["with_value"]))
}

func (subsets) second(p *Parameters, d *Draws, memo []byte) []byte {
	return packed(d.overlap(unpacked(memo, p.K), p.Omega, p.cumulated))
}

func (subsets) loss(p *Parameters, coins Coins) float64 {
	return lossOfSubset(coins, p.K, p.MemoSize)
}

// weights returns the cumulated weights of 0, 1, ... common values of a memo and a report, or nil if they are too large.
func (p *Parameters) weights() []*big.Int {
	common := min(p.MemoSize, p.Omega)
	numerator, ok := new(big.Int).SetString(p.Odds.Numerator, 16)
	if !ok || int64(numerator.BitLen())*common >= 2*mostWeightBits {
		return nil
	}
	sum, cumulated := new(big.Int), []*big.Int{}
	for j := range common + 1 {
		weight := new(big.Int).Exp(numerator, big.NewInt(j), nil)
		weight.Lsh(weight, uint(p.Odds.Shift*(common-j)))
		weight.Mul(weight, new(big.Int).Binomial(p.MemoSize, j))
		weight.Mul(weight, new(big.Int).Binomial(p.K-p.MemoSize, p.Omega-j))
		sum = new(big.Int).Add(sum, weight)
		cumulated = append(cumulated, sum)
	}
	if sum.BitLen() > mostWeightBits {
		return nil
	}
	return cumulated
}

func (subsets) lossOfTwo(p *Parameters, memo, report Coins) float64 {
	k, m, omega := float64(p.K), float64(p.MemoSize), float64(p.Omega)
	odds, logs := p.LogOdds(), []float64{0}
	for j := 0.0; j < min(m, omega); j++ {
		step := math.Log((m - j) * (omega - j) / ((j + 1) * (k - m - omega + j + 1)))
		logs = append(logs, logs[int(j)]+odds+step)
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

func (subsets) anyValues(p *Parameters, report Coins) float64 {
	return float64(min(p.MemoSize, p.Omega)) * p.LogOdds()
}

func (s subsets) sequence(p *Parameters, memo, report Coins, t float64) float64 {
	if t == 1 {
		return s.lossOfTwo(p, memo, report)
	}
	return s.loss(p, memo)
}
