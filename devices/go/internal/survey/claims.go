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

// together combines what a function says of each attribute at its level.
func (s *Survey) together(levels []int, of func(a, level int) float64) float64 {
	var losses []float64
	for a, level := range levels {
		losses = append(losses, of(a, level))
	}
	return Together(losses, s.AddsUp())
}

// Claim returns the claim with these levels; 0 per window without a window.
func (s *Survey) Claim(levels []int, windowSeconds int64) (claim Claim) {
	at := func(a, level int) *mechanism.Parameters { return s.Mechanisms[a][level] }
	for a, level := range levels {
		claim.Losses = append(claim.Losses, at(a, level).AnyValues())
	}
	bound := func(steps float64) float64 {
		return s.together(levels, func(a, level int) float64 { return at(a, level).ReportsIn(steps) * claim.Losses[a] })
	}
	claim.ForEver = bound(s.steps())
	if windowSeconds > 0 {
		touched := (windowSeconds-1)/s.Text.StepSeconds + 2
		claim.PerWindow = bound(min(float64(touched), s.steps()))
	}
	return claim
}

// LargestLoss bounds the loss of all reports while the values stay the same; infinite if nothing bounds it.
func (s *Survey) LargestLoss(levels []int) float64 {
	return s.together(levels, func(a, chosen int) float64 {
		level := s.Text.Attribute[a].Level[chosen]
		if level.Eps != nil {
			return s.Mechanisms[a][chosen].ReportsIn(s.steps()) * *level.Eps / s.share()
		}
		return orInfinite(level.EpsInf) / s.share()
	})
}

// LossOfReport returns the loss of one report of an attribute, as the survey promises it.
func (s *Survey) LossOfReport(a, chosen int) float64 {
	level := s.Text.Attribute[a].Level[chosen]
	if level.Eps != nil {
		return *level.Eps / s.share()
	}
	return orInfinite(level.Eps1) / s.share()
}

// LossOfStep returns the loss of the reports of one step.
func (s *Survey) LossOfStep(levels []int) float64 { return s.together(levels, s.LossOfReport) }

func orInfinite(loss *float64) float64 {
	if loss == nil {
		return math.Inf(1)
	}
	return *loss
}
