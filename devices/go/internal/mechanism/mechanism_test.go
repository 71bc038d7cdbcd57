package mechanism

import (
	"bytes"
	"testing"

	"ldpstream/device/internal/vectors"
)

func TestHashes(t *testing.T) {
	type hashes struct {
		Parameters
		Cases [][3]int64
	}
	for _, c := range vectors.Read[hashes](t, "hashes") {
		if !c.Field.has(c.G) || c.Field.has(c.G*c.G) || !isPower(c.G, c.Digits, c.Functions) {
			t.Errorf("g = %d: the field is another one", c.G)
		}
		for _, one := range c.Cases {
			if got := c.hash(one[0], one[1]); got != one[2] {
				t.Errorf("g = %d: H_%d(%d) is %d, not %d", c.G, one[0], one[1], got, one[2])
			}
		}
	}
}

func TestDraws(t *testing.T) {
	type draws struct {
		Parameters Parameters
		Cases      []struct {
			Value, Function      int64
			Random, Memo, Report vectors.Hex
		}
	}
	for _, c := range vectors.Read[draws](t, "draws") {
		p := &c.Parameters
		if err := p.Check(p.K); err != nil {
			t.Fatal(p.Mechanism, err)
		}
		for _, one := range c.Cases {
			random := vectors.NewRandom(one.Random)
			d := NewDraws(random)
			var report []byte
			if p.Memoized() {
				memo := p.Memo(d, p.MemoKey(one.Value, one.Function), one.Function)
				if !bytes.Equal(memo, one.Memo) || !p.IsMemo(memo) {
					t.Errorf("%s, value %d, random %x: memo %x, not %x", p.Mechanism, one.Value, one.Random, memo, one.Memo)
				}
				report = p.FromMemo(d, memo)
			} else {
				report = p.Once(d, one.Value)
			}
			if !bytes.Equal(report, one.Report) || random.Len() != 0 || d.Err() != nil {
				t.Errorf("%s, value %d, random %x: report %x, not %x", p.Mechanism, one.Value, one.Random, report, one.Report)
			}
		}
	}
}

func TestLosses(t *testing.T) {
	type ledger struct {
		Parameters Parameters
		T          int64
		EpsT       float64 `json:"eps_t"`
		AnyValues  float64 `json:"any_values"`
	}
	for _, c := range vectors.Read[ledger](t, "ledger") {
		p := &c.Parameters
		if err := p.Check(p.K); err != nil {
			t.Fatal(p.Mechanism, err)
		}
		if !vectors.Close(p.EpsT(c.T), &c.EpsT) || !vectors.Close(float64(c.T)*p.AnyValues(), &c.AnyValues) {
			t.Errorf("%s, t = %d: %v and %v", p.Mechanism, c.T, p.EpsT(c.T), float64(c.T)*p.AnyValues())
		}
	}
}
