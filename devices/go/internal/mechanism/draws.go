package mechanism

import (
	"io"
	"math/big"
	"math/bits"
)

// Draws makes the document's random draws from a source of random bytes. All draws use integers, since floating-point numbers can
// leak the value. After a failure of the source it draws zeros: see Err.
type Draws struct {
	source io.Reader
	err    error
}

// NewDraws draws from a source.
func NewDraws(source io.Reader) *Draws { return &Draws{source: source} }

// Err returns the first error of the source. Nothing that was drawn may be kept if it is not nil.
func (d *Draws) Err() error { return d.err }

// Bytes draws n bytes.
func (d *Draws) Bytes(n int) []byte {
	drawn := make([]byte, n)
	if d.err == nil {
		_, d.err = io.ReadFull(d.source, drawn)
	}
	if d.err != nil {
		clear(drawn)
	}
	return drawn
}

// Below draws a uniform integer in 0 ... n-1.
func (d *Draws) Below(n int64) int64 {
	width := bits.Len64(uint64(n - 1))
	for {
		r := uint64(0)
		for _, b := range d.Bytes((width + 7) / 8) {
			r = r<<8 | uint64(b)
		}
		if r &= 1<<width - 1; r < uint64(n) {
			return int64(r)
		}
	}
}

// toss draws n independent answers of a coin.
func (d *Draws) toss(c Coin, n int) []bool {
	answers := make([]bool, n)
	undecided := make([]int, n)
	for i := range undecided {
		answers[i] = c.inverted
		undecided[i] = i
	}
	for _, digit := range c.digits {
		still := undecided[:0]
		drawn := d.Bytes(len(undecided))
		for j, i := range undecided {
			if drawn[j] < digit {
				answers[i] = !c.inverted
			} else if drawn[j] == digit {
				still = append(still, i)
			}
		}
		undecided = still
	}
	return answers
}

func (d *Draws) symbol(s, m int64, keep Coin) int64 {
	return d.cell(s, m, 1, keep)
}

func (d *Draws) cell(v, k, width int64, keep Coin) int64 {
	if d.toss(keep, 1)[0] {
		return v + d.Below(width)
	}
	r := d.Below(k - 1)
	if r >= v {
		r += width
	}
	return r
}

// member draws a member of a padded set, or another symbol; bit v of the code says whether the set has the value v.
func (d *Draws) member(code, k, choices int64, coin Coin) int64 {
	var padded, others []int64
	missing := choices - int64(bits.OnesCount64(uint64(code)))
	for s := range k {
		if n := k - choices; s < n && code>>s&1 == 1 || s >= n && s < n+missing {
			padded = append(padded, s)
		} else {
			others = append(others, s)
		}
	}
	if d.toss(coin, 1)[0] {
		return padded[d.Below(choices)]
	}
	return others[d.Below(k-choices)]
}

func (d *Draws) bits(values []bool, coins Coins) []bool {
	drawn := make([]bool, len(values))
	for _, one := range []bool{true, false} {
		var places []int
		for i, value := range values {
			if value == one {
				places = append(places, i)
			}
		}
		coin := coins["zero"]
		if one {
			coin = coins["one"]
		}
		for j, answer := range d.toss(coin, len(places)) {
			drawn[places[j]] = answer
		}
	}
	return drawn
}

// belowBig is below for numbers of any size.
func (d *Draws) belowBig(n *big.Int) *big.Int {
	width := new(big.Int).Sub(n, big.NewInt(1)).BitLen()
	mask := new(big.Int).Lsh(big.NewInt(1), uint(width))
	mask.Sub(mask, big.NewInt(1))
	for {
		r := new(big.Int).SetBytes(d.Bytes((width + 7) / 8))
		if r.And(r, mask).Cmp(n) < 0 {
			return r
		}
	}
}

// floyd draws c of the numbers below n.
func (d *Draws) floyd(n, c int64) []bool {
	drawn := make([]bool, n)
	for i := n - c; i < n; i++ {
		r := d.Below(i + 1)
		if drawn[r] {
			r = i
		}
		drawn[r] = true
	}
	return drawn
}

func (d *Draws) subset(v, k, omega int64, withValue Coin) []bool {
	with := d.toss(withValue, 1)[0]
	c := omega
	if with {
		c--
	}
	others := d.floyd(k-1, c)
	members := make([]bool, 0, k)
	members = append(members, others[:v]...)
	members = append(members, with)
	return append(members, others[v:]...)
}

// overlap draws a set of omega values; weights has the cumulated weights of its numbers of common values with the memo.
func (d *Draws) overlap(memo []bool, omega int64, weights []*big.Int) []bool {
	u, common := d.belowBig(weights[len(weights)-1]), int64(0)
	for weights[common].Cmp(u) <= 0 {
		common++
	}
	var inside, outside []int
	for value, member := range memo {
		if member {
			inside = append(inside, value)
		} else {
			outside = append(outside, value)
		}
	}
	drawn := make([]bool, len(memo))
	for i, one := range d.floyd(int64(len(inside)), common) {
		drawn[inside[i]] = one
	}
	for i, one := range d.floyd(int64(len(outside)), omega-common) {
		drawn[outside[i]] = one
	}
	return drawn
}
