package survey

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"reflect"

	"ldpstream/device/internal/fault"
	"ldpstream/device/internal/mechanism"
)

const (
	mostEps         = 700  // nats; the check of the coins is not accurate for larger losses
	digitsTolerance = 1e-5 // the canonical text has six digits
	lossTolerance   = 1e-9 // nats
)

// Survey passed every check. Nothing changes it.
type Survey struct {
	Name        string
	Pin         string // the SHA-256 of Canonical, as 64 hexadecimal digits
	Canonical   string
	Fingerprint [8]byte
	Text        *Canonical
	Mechanisms  [][]*mechanism.Parameters
	Signatures  []Signature
	Words       Words
}

// Words are the survey's own words, as the gateway serves them. They are not a part of the pin: the gateway can change them.
type Words struct {
	Title          string  `json:"title"`
	Description    string  `json:"description"`
	Purpose        *string `json:"purpose"`
	Owner          *string `json:"owner"`
	Contact        string  `json:"contact"`
	RetentionSteps *int64  `json:"retention_steps"`
}

// KeptSeconds tells how long the service keeps the histograms, or nil if it does not say so.
func (s *Survey) KeptSeconds() *int64 {
	steps := s.Words.RetentionSteps
	if steps == nil || *steps < 0 {
		return nil
	}
	kept := int64(math.MaxInt64)
	if *steps <= kept/s.Text.StepSeconds {
		kept = *steps * s.Text.StepSeconds
	}
	return &kept
}

// Parse reads a device survey, and makes every check.
func Parse(text []byte) (*Survey, error) {
	var document struct {
		Name        string                    `json:"name"`
		Canonical   string                    `json:"canonical"`
		Fingerprint string                    `json:"fingerprint"`
		Mechanisms  [][]*mechanism.Parameters `json:"mechanisms"`
		Signatures  []Signature               `json:"signatures"`
		Words       Words                     `json:"words"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, unreadable(err)
	}
	s, err := Checked(document.Name, document.Canonical, document.Mechanisms)
	if err != nil {
		return nil, err
	}
	if hex.EncodeToString(s.Fingerprint[:]) != document.Fingerprint {
		return nil, fault.New(fault.UnsafeSurvey, "the fingerprint is not the hash of the canonical text")
	}
	s.Signatures, s.Words = document.Signatures, document.Words
	return s, nil
}

func unreadable(err error) error {
	return fault.New(fault.UnknownSurvey, "the device survey cannot be read: %w", err)
}

// Checked makes the checks of a canonical text and its parameters.
func Checked(name, canonical string, parameters [][]*mechanism.Parameters) (*Survey, error) {
	hash := sha256.Sum256([]byte(canonical))
	s := &Survey{Name: name, Canonical: canonical, Pin: hex.EncodeToString(hash[:]), Fingerprint: [8]byte(hash[:8]),
		Text: new(Canonical), Mechanisms: parameters}
	if err := json.Unmarshal([]byte(canonical), s.Text); err != nil {
		return nil, unreadable(err)
	}
	if err := s.Text.check(); err != nil {
		return nil, err
	}
	if len(s.Text.Attribute) != len(parameters) {
		return nil, fault.New(fault.UnsafeSurvey, "the parameters have another number of attributes than the canonical text")
	}
	for i, a := range s.Text.Attribute {
		if err := a.check(s.Text); err != nil {
			return nil, err
		}
		if len(a.Level) != len(parameters[i]) {
			return nil, a.refused("another number of levels")
		}
		for j, level := range a.Level {
			if err := level.check(a, parameters[i][j], s.share()); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// check compares a level with its parameters, whose coins may lose a share of the level's losses.
func (l *Level) check(a *Attribute, p *mechanism.Parameters, share float64) error {
	refused := func(text string) error {
		return fault.New(fault.UnsafeSurvey, "attribute %q, level %q: %s", a.Name, l.Name, text)
	}
	if p == nil {
		return refused("no parameters")
	}
	expected := l.Stated
	if expected.EverySteps == nil && p.EverySteps != nil && *p.EverySteps == 1 {
		expected.EverySteps = p.EverySteps
	}
	if err := p.Check(a.K()); err == mechanism.ErrUnknown {
		return fault.New(fault.UnknownSurvey, "attribute %q, level %q: the mechanism %q", a.Name, l.Name, p.Mechanism)
	} else if err != nil {
		return refused(err.Error())
	}
	choices := int64(0)
	if a.Choices != nil {
		choices = *a.Choices
	}
	switch {
	case !reflect.DeepEqual(p.Stated, expected):
		return refused("other parameters than in the canonical text")
	case a.IsPair() && p.K > largestPair:
		return refused("a pair with too many values")
	case p.Choices != choices || p.OfSets() != (a.Choices != nil):
		return refused("choices, and a mechanism for sets, exactly for a question with several answers")
	case !l.hasCoinsOf(p):
		return refused("another probability than in the canonical text")
	case p.MemoSize > 0 && !(math.Abs(p.LogOdds()-l.LogOdds) <= digitsTolerance*l.LogOdds):
		return refused("other odds than in the canonical text")
	}
	memo, report := p.Losses()
	if !p.Memoized() && atMost(report, l.Eps, share) || p.Memoized() && atMost(memo, l.EpsInf, share) && atMost(report, l.Eps1, share) {
		return nil
	}
	return refused("the coins lose more than the level promises, or it promises no loss from 0 to 700 nats")
}

// hasCoinsOf compares the coins with the six digits that the canonical text has of each smaller probability.
func (l *Level) hasCoinsOf(p *mechanism.Parameters) bool {
	for round, coins := range p.Coins {
		for name, coin := range coins {
			stated, smaller := l.Coins[round][name], coin.Smaller()
			expected, says := stated["yes"], "yes"
			if _, yes := stated["yes"]; !yes {
				expected, says = stated["no"], "no"
			}
			inverted := says == "no"
			same := math.Abs(smaller-expected) <= digitsTolerance*expected // false for NaN
			if len(stated) != 1 || inverted != coin.Inverted() && smaller != 0.5 || !same {
				return false
			}
		}
	}
	return true
}

// atMost is false for NaN and without a promise.
func atMost(loss float64, promised *float64, share float64) bool {
	return promised != nil && *promised > 0 && *promised <= mostEps && math.Abs(loss) <= *promised/share+lossTolerance
}

// StepAt returns the step of a time in milliseconds since 1970; negative before the survey's start.
func (s *Survey) StepAt(nowMs int64) int64 {
	since, length := sum(nowMs, -max(s.Text.Start, -math.MaxInt64)), s.stepMs()
	step := since / length
	if since%length < 0 {
		step--
	}
	return step
}

// OpensMs returns the beginning of a step in milliseconds since 1970; the latest possible time if the step is too far.
func (s *Survey) OpensMs(step int64) int64 {
	return sum(product(step, s.stepMs()), s.Text.Start)
}

// Moment returns a time after the beginning of a step, in milliseconds since 1970.
func (s *Survey) Moment(step, seconds, ms int64) int64 {
	return sum(sum(product(seconds, 1000), ms), s.OpensMs(step))
}

func (s *Survey) stepMs() int64 { return product(s.Text.StepSeconds, 1000) }

// Place returns the number of an attribute.
func (s *Survey) Place(attribute string) (int, error) {
	for i, a := range s.Text.Attribute {
		if a.Name == attribute {
			return i, nil
		}
	}
	return 0, fault.New(fault.Value, "survey %q has no attribute %q", s.Name, attribute)
}

// sum and product of integers, the second one of two numbers that are not negative; the nearest integer if they are too large.
func sum(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

func product(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
