package device

import (
	"math"
	"time"

	"ldpstream/device/internal/survey"
	"ldpstream/device/internal/wire"
)

// Survey is a device survey that passed every check. Nothing changes it, so that goroutines may share it.
type Survey struct {
	inner *survey.Survey
}

// Attribute is a question of a survey.
type Attribute struct {
	Name      string
	TakesList bool // a value is a list: of a pair, or of a question with several answers
	HasRecipe bool // the device computes the value itself: see [Activity]
}

// ParseSurvey reads a device survey, as `ldpstream canonical SURVEY` prints it and the gateway serves it, and makes every check.
//
// It returns [ErrUnknownSurvey] for another format, mechanism or collection, and [ErrUnsafeSurvey] if a check fails.
func ParseSurvey(text []byte) (*Survey, error) {
	inner, err := survey.Parse(text)
	if err != nil {
		return nil, err
	}
	return &Survey{inner}, nil
}

// Name returns the survey's name.
func (s *Survey) Name() string { return s.inner.Name }

// Pin returns the SHA-256 of the canonical text, as 64 hexadecimal digits.
func (s *Survey) Pin() string { return s.inner.Pin }

// Canonical returns the text that the pin is the hash of.
func (s *Survey) Canonical() string { return s.inner.Canonical }

// Attributes returns the questions in the survey's order.
func (s *Survey) Attributes() []Attribute {
	all := make([]Attribute, len(s.inner.Text.Attribute))
	for i, a := range s.inner.Text.Attribute {
		all[i] = Attribute{a.Name, a.IsPair() || a.Choices != nil, a.Recipe != nil}
	}
	return all
}

// StepAt returns the step of a time; negative before the survey's start.
func (s *Survey) StepAt(now time.Time) int64 { return s.inner.StepAt(now.UnixMilli()) }

// Opens returns the beginning of a step.
func (s *Survey) Opens(step int64) time.Time { return time.UnixMilli(s.inner.OpensMs(step)) }

// Closes returns the time after which the service takes no report of a step.
func (s *Survey) Closes(step int64) time.Time {
	return s.Opens(step + 1 + min(s.inner.Text.LatenessSteps, math.MaxInt64-step-1))
}

// NeedsRelay tells whether the reports must go through a relay.
func (s *Survey) NeedsRelay() bool { return s.inner.Text.Relay != nil }

// LargestEnvelope returns the size of the survey's largest report in bytes.
func (s *Survey) LargestEnvelope() (largest int) {
	head := wire.Head{Step: math.MaxUint64}
	if cohort := s.inner.Text.Cohort; cohort != nil {
		last := len(cohort.Values) - 1
		head.Cohort = &last
	}
	for a, levels := range s.inner.Mechanisms {
		for level, p := range levels {
			head.Attribute, head.Level = a, level
			largest = max(largest, len(wire.Seal(head, 1, make([]byte, p.RowBytes))))
		}
	}
	return largest
}
