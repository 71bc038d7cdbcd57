package survey

import (
	"math"

	"ldpstream/device/internal/mechanism"
)

// Claim is what a survey claims of a wallet, in nats. It can be infinite.
type Claim struct {
	PerWindow, ForEver float64
	Losses             []float64 // of one report of each attribute
}

// Together returns the loss of all attributes together: the sum if their losses add up, otherwise the largest.
func Together(losses []float64, addsUp bool) (all float64) {
	for _, loss := range losses {
		if addsUp {
			all += loss
		} else {
			all = max(all, loss)
		}
	}
	return all
}

// AddsUp tells whether the losses of the attributes add up.
func (s *Survey) AddsUp() bool { return s.Text.Collection == "spl" }

func (s *Survey) share() float64 {
	if s.AddsUp() {
		return float64(len(s.Text.Attribute))
	}
	return 1
}

func (s *Survey) steps() float64 {
	if s.Text.Ends == nil {
		return math.Inf(1)
	}
	return float64(*s.Text.Ends)
}

// Claim returns the claim with these levels; 0 per window without a window.
func (s *Survey) Claim(levels []int, windowSeconds int64) (claim Claim) {
	at := func(a, level int) *mechanism.Parameters { return s.Mechanisms[a][level] }
	for a, level := range levels {
		claim.Losses = append(claim.Losses, at(a, level).AnyValues())
	}
	bound := func(steps float64) float64 {
		var losses []float64
		for a, level := range levels {
			losses = append(losses, at(a, level).ReportsIn(steps)*claim.Losses[a])
		}
		return Together(losses, s.AddsUp())
	}
	claim.ForEver = bound(s.steps())
	if windowSeconds > 0 {
		touched := (windowSeconds-1)/s.Text.StepSeconds + 2
		claim.PerWindow = bound(min(float64(touched), s.steps()))
	}
	return claim
}

// made is the loss of one report of an attribute in nats, and the number of reports.
type made struct{ eps, n float64 }

// mostReports of a one-time level are looked at. More count as certainty, or by their whole loss.
const mostReports = 1000

// LargestLoss bounds the loss of all reports while the values stay the same; infinite if nothing bounds it.
func (s *Survey) LargestLoss(levels []int) float64 { return s.lossOf(s.losses(levels)) }

// losses returns what a device makes of each attribute while the value stays the same. All reports of a memoized level count as one
// report with the loss of its memo.
func (s *Survey) losses(levels []int) (all []made) {
	for a, chosen := range levels {
		level := s.Text.Attribute[a].Level[chosen]
		if level.Eps != nil {
			all = append(all, made{*level.Eps / s.share(), s.Mechanisms[a][chosen].ReportsIn(s.steps())})
		} else {
			all = append(all, made{orInfinite(level.EpsInf) / s.share(), 1})
		}
	}
	return all
}

// ofReport returns the loss of one report of an attribute, as the survey promises it.
func (s *Survey) ofReport(a, chosen int) made {
	level := s.Text.Attribute[a].Level[chosen]
	if level.Eps != nil {
		return made{*level.Eps / s.share(), 1}
	}
	return made{orInfinite(level.Eps1) / s.share(), 1}
}

func (s *Survey) lossOf(all []made) float64 {
	var losses []float64
	for _, one := range all {
		losses = append(losses, one.eps*one.n)
	}
	return Together(losses, s.AddsUp())
}

// guessBound is an upper bound of the chance of a right guess among k equally likely values; docs/reference/write_a_device.md has
// the formula.
func (s *Survey) guessBound(k float64, all []made) float64 {
	ofLoss, worst, added := 1/(1+(k-1)*math.Exp(-s.lossOf(all))), 0.0, made{}
	for _, one := range all {
		added = made{max(added.eps, one.eps), added.n + one.n}
		worst = max(worst, guessOfReports(k, one))
	}
	if s.AddsUp() {
		worst = guessOfReports(k, added)
	}
	return min(ofLoss, worst)
}

func guessOfReports(k float64, one made) float64 {
	if one.n > mostReports {
		return 1
	}
	back := math.Exp(-one.eps)
	bound, chance, yes, no := 1.0, math.Pow(1/(1+back), one.n), 0.0, 0.0
	for j := one.n; 2*j >= one.n; j-- {
		x := (k - 1) * math.Exp((one.n-2*j)*one.eps)
		bound = min(bound, ((yes-no)*x+1)/(x+1))
		yes, no = yes+chance, (no+chance)*back*back
		chance *= j / (one.n - j + 1) * back
	}
	return bound
}

func orInfinite(loss *float64) float64 {
	if loss == nil {
		return math.Inf(1)
	}
	return *loss
}
