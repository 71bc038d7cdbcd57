// Package state has what a store keeps: the enrolments, memos and envelopes of one person, and a wallet's charges.
package state

import (
	"encoding/hex"
	"encoding/json"
	"math"

	"ldpstream/device/internal/survey"
)

// State is the document of a device or wallet.
type State struct {
	Budget   *Budget                        `json:"budget"` // of a wallet
	Surveys  []*Enrolled                    `json:"surveys"`
	Consents map[string]map[string]Answered `json:"consents"` // by pin and attribute, also without an enrolment
}

// Budget has a wallet's limits in nats and seconds; nil for no limit.
type Budget struct {
	PerWindow     *float64 `json:"per_window"`
	WindowSeconds *int64   `json:"window_s"`
	ForEver       *float64 `json:"for_ever"`
}

// Answered is a person's answer for one attribute, with the survey's texts and storage in seconds.
type Answered struct {
	Given       bool    `json:"given"`
	Purpose     *string `json:"purpose"`
	Owner       *string `json:"owner"`
	KeptSeconds *int64  `json:"kept_s"`
}

// Enrolled is an enrolment. After the device has left the survey, only its charges stay.
type Enrolled struct {
	Pin        string     `json:"pin"`
	Name       string     `json:"name"`
	AddsUp     bool       `json:"adds_up"`
	PerWindow  Nats       `json:"per_window"`
	ForEver    Nats       `json:"for_ever"`
	UntilMs    *int64     `json:"until_ms"` // the charge per window counts until a window after this time; nil: always
	Left       *int64     `json:"left"`     // the number of reports, after the device has left
	Attributes []*Answers `json:"attributes"`
	Journal    []Left     `json:"journal"`
}

// Left is a report that left, or may have left.
type Left struct {
	AtMs      int64  `json:"at_ms"`
	Attribute string `json:"attribute"`
	Step      int64  `json:"step"`
	Envelope  Hex    `json:"envelope"`
	Local     bool   `json:"local"` // it left only for show
	Key       string `json:"key"`
}

// Nats is a loss. In JSON, which has no infinity, null stands for it.
type Nats float64

// MarshalJSON writes null for infinity.
func (n Nats) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads null as infinity.
func (n *Nats) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = Nats(math.Inf(1))
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// Hex is bytes that are hexadecimal digits in JSON.
type Hex []byte

// MarshalText writes the digits.
func (h Hex) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

// UnmarshalText reads the digits.
func (h *Hex) UnmarshalText(digits []byte) (err error) {
	*h, err = hex.DecodeString(string(digits))
	return err
}

// New returns the document of a device or, with a budget, of a wallet.
func New(budget *Budget) *State {
	return &State{Budget: budget, Surveys: []*Enrolled{}, Consents: map[string]map[string]Answered{}}
}

// Enrolled returns the present enrolment in a survey, or nil.
func (s *State) Enrolled(pin string) *Enrolled {
	if s == nil {
		return nil
	}
	for _, one := range s.Surveys {
		if one.Pin == pin && one.Left == nil {
			return one
		}
	}
	return nil
}

// Charged returns the sums of the charges per window that still count at a time, and of those for ever.
func (s *State) Charged(fromMs int64) (perWindow, forEver float64) {
	window := int64(0)
	if s.Budget != nil && s.Budget.WindowSeconds != nil {
		window = *s.Budget.WindowSeconds * 1000
	}
	for _, one := range s.Surveys {
		if one.UntilMs == nil || *one.UntilMs > fromMs-window {
			perWindow += float64(one.PerWindow)
		}
		forEver += float64(one.ForEver)
	}
	return perWindow, forEver
}

// Leave erases a survey's records. Its charges become the loss of the reports made.
func (s *State) Leave(pin string, opensMs func(step int64) int64) {
	one := s.Enrolled(pin)
	if one == nil {
		return
	}
	reports, spent := one.Spent()
	if last := one.lastStep(); last >= 0 {
		until := opensMs(last + 1)
		one.UntilMs = &until
	}
	one.PerWindow, one.ForEver = min(one.PerWindow, Nats(spent)), Nats(spent)
	one.Left, one.Attributes, one.Journal = &reports, []*Answers{}, []Left{}
	kept := []*Enrolled{}
	for _, other := range s.Surveys {
		if other.Left == nil || *other.Left != 0 {
			kept = append(kept, other)
		}
	}
	s.Surveys = kept
}

// Spent returns the number of reports, and the bound of their loss in nats.
func (e *Enrolled) Spent() (reports int64, loss float64) {
	if e.Left != nil {
		return *e.Left, float64(e.ForEver)
	}
	losses := []float64{}
	for _, one := range e.Attributes {
		reports += one.Reports
		if one.Reports > 0 {
			losses = append(losses, float64(one.Reports)*float64(one.Loss))
		}
	}
	return reports, survey.Together(losses, e.AddsUp)
}

// lastStep returns the last step with a report, or -1.
func (e *Enrolled) lastStep() int64 {
	last := int64(-1)
	for _, one := range e.Attributes {
		last = max(last, one.lastStep())
	}
	return last
}
