package device

import (
	"crypto/rand"
	"math"
	"slices"
	"strings"
	"time"

	"ldpstream/device/internal/fault"
	"ldpstream/device/internal/mechanism"
	"ldpstream/device/internal/state"
)

const (
	pinDigits = 64
	tolerance = 1e-9 // nats
)

func open(survey *Survey, store Store, options Options, clock func() time.Time, inWallet bool) (*Device, error) {
	if err := survey.requirePin(options.Pin); err != nil {
		return nil, err
	}
	if err := survey.inner.RequireSigned(options.SignedBy, options.AlsoSignedBy); err != nil {
		return nil, err
	}
	cohort, err := survey.cohort(options.Cohort)
	if err != nil {
		return nil, err
	}
	chosen, err := survey.levels(options.Levels)
	if err != nil {
		return nil, err
	}
	d := &Device{survey: survey, store: store, inWallet: inWallet, mode: options.Consent, cohort: cohort, clock: clock,
		startsOff: options.Consent != ModeSimulated && SwitchedOff() != "", random: options.Random, stopped: map[int]bool{}}
	if d.random == nil {
		d.random = rand.Reader
	}
	for _, level := range chosen {
		d.levels = append(d.levels, max(level, 0))
	}
	err = d.transaction(func(kept *state.State) (*state.State, error) { return d.begin(kept, chosen, options) })
	if err != nil {
		return nil, err
	}
	return d, nil
}

// begin checks the store, and enrolls if consent is given. A chosen level is -1 if the person chose none.
func (d *Device) begin(kept *state.State, chosen []int, options Options) (*state.State, error) {
	if err := d.another(kept); err != nil {
		return nil, err
	}
	most := options.MaxEps
	if most == 0 {
		most = math.Inf(1)
	}
	asks := !slices.Contains(d.muted(kept), "")
	if enrolled := kept.Enrolled(d.survey.Pin()); enrolled != nil {
		for a, one := range enrolled.Attributes {
			if chosen[a] >= 0 && chosen[a] != one.Level {
				return nil, fault.New(fault.Store, "%s: the device enrolled with other levels", d.store)
			}
			d.levels[a] = one.Level
		}
		return kept, d.requireAtMost(most)
	}
	gone := kept == nil && (options.ExpectEnrolled || d.inWallet)
	if gone || options.ExpectEnrolled && !asks {
		return nil, fault.New(fault.StoreCleared, "%s: there is no enrolment, but one was made", d.store)
	}
	if err := d.requireAtMost(most); err != nil {
		return nil, err
	}
	if asks {
		_, err := d.admitted(kept) // a wallet without room says so before anybody is asked
		return kept, err
	}
	if kept == nil {
		kept = state.New(nil)
	}
	return kept, d.enter(kept)
}

func (d *Device) requireAtMost(most float64) error {
	if loss := d.survey.inner.LargestLoss(d.levels); !(loss <= most+tolerance) {
		return fault.New(fault.CostlySurvey, "survey %q may lose %v nats, the application allows %v", d.survey.Name(), loss, most)
	}
	return nil
}

// enter charges the survey's claim, and makes the choices of a new device in the order that the document fixes.
func (d *Device) enter(kept *state.State) error {
	enrolled, err := d.admitted(kept)
	if err != nil {
		return err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	draws := mechanism.NewDraws(d.random)
	sampled := int(draws.Below(int64(len(d.levels))))
	for a, one := range enrolled.Attributes {
		p := d.survey.inner.Mechanisms[a][d.levels[a]]
		one.Level = d.levels[a]
		one.Silent = d.survey.inner.Text.Collection == "smp" && a != sampled
		if d.survey.inner.Text.Collection == "rs+fd" && a != sampled {
			fake := draws.Below(p.K)
			one.Fake = &fake
		}
		if p.Memoized() && p.Functions > 0 {
			one.Function = draws.Below(p.Functions)
		}
		one.Phase = draws.Below(p.Every())
	}
	if err := draws.Err(); err != nil {
		return fault.New(fault.Random, "%w", err)
	}
	kept.Surveys = append(kept.Surveys, enrolled)
	return nil
}

// admitted charges the survey's claim, and returns the enrolment without its choices.
func (d *Device) admitted(kept *state.State) (*state.Enrolled, error) {
	var budget state.Budget
	if kept != nil && kept.Budget != nil {
		budget = *kept.Budget
	}
	window, first := int64(0), int64(0)
	if budget.WindowSeconds != nil {
		window = *budget.WindowSeconds
	}
	if d.inWallet {
		first = max(0, d.survey.StepAt(d.clock()))
	}
	claim := d.survey.inner.Claim(d.levels, window)
	if kept != nil && kept.Budget != nil {
		perWindow, forEver := kept.Charged(d.survey.inner.OpensMs(first))
		for _, one := range []struct {
			limit          *float64
			asked, charged float64
		}{{budget.PerWindow, claim.PerWindow, perWindow}, {budget.ForEver, claim.ForEver, forEver}} {
			if one.limit != nil && !(one.asked+one.charged <= *one.limit*(1+tolerance)) {
				return nil, fault.New(fault.WalletFull, "survey %q may lose %v nats, and %v are charged", d.survey.Name(), one.asked, one.charged)
			}
		}
	}
	enrolled := &state.Enrolled{Pin: d.survey.Pin(), Name: d.survey.Name(), AddsUp: d.survey.inner.AddsUp(),
		PerWindow: state.Nats(claim.PerWindow), ForEver: state.Nats(claim.ForEver), Journal: []state.Left{}}
	if ends := d.survey.inner.Text.Ends; ends != nil {
		until := d.survey.inner.OpensMs(*ends)
		enrolled.UntilMs = &until
	}
	for _, loss := range claim.Losses {
		enrolled.Attributes = append(enrolled.Attributes, state.NewAnswers(loss, first))
	}
	return enrolled, nil
}

// enrolled returns the present enrolment.
func (d *Device) enrolled(kept *state.State) (*state.Enrolled, error) {
	if err := d.another(kept); err != nil {
		return nil, err
	}
	if enrolled := kept.Enrolled(d.survey.Pin()); enrolled != nil {
		return enrolled, nil
	}
	return nil, fault.New(fault.StoreCleared, "%s: there is no enrolment", d.store)
}

// another tells why this device cannot use a state, such as that of another survey in a store without a wallet.
func (d *Device) another(kept *state.State) error {
	if kept == nil {
		return nil
	}
	if d.inWallet != (kept.Budget != nil) {
		return fault.New(fault.Store, "%s: a wallet's file is no device's file", d.store)
	}
	for _, one := range kept.Surveys {
		if one.Pin != d.survey.Pin() && !d.inWallet {
			return fault.New(fault.WrongSurvey, "%s: belongs to the survey %q with the pin %q", d.store, one.Name, one.Pin)
		}
		if one.Pin == d.survey.Pin() && one.Left == nil && !d.fits(one) {
			return fault.New(fault.Store, "%s: the file is damaged", d.store)
		}
	}
	return nil
}

// fits tells whether an enrolment is one of this survey, with its attributes, levels and memos.
func (d *Device) fits(enrolled *state.Enrolled) bool {
	if len(enrolled.Attributes) != len(d.survey.inner.Mechanisms) {
		return false
	}
	for a, one := range enrolled.Attributes {
		levels := d.survey.inner.Mechanisms[a]
		if one.Level < 0 || one.Level >= len(levels) {
			return false
		}
		p := levels[one.Level]
		if one.Fake != nil && (*one.Fake < 0 || *one.Fake >= p.K) || one.Function < 0 || one.Function > max(0, p.Functions-1) {
			return false
		}
		for _, memo := range one.Memos {
			if !p.Memoized() || !p.IsMemo(memo.Row) {
				return false
			}
		}
	}
	return true
}

func (s *Survey) requirePin(pin string) error {
	hexadecimal := !strings.ContainsFunc(pin, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) })
	switch {
	case pin == "" || pin == s.Pin():
		return nil
	case len(pin) != pinDigits || !hexadecimal:
		return fault.New(fault.Value, "a pin has 64 hexadecimal digits in lower case")
	}
	return fault.New(fault.WrongSurvey, "survey %q has the pin %s, expected %s", s.Name(), s.Pin(), pin)
}

func (s *Survey) cohort(name string) (*int, error) {
	cohort := s.inner.Text.Cohort
	switch {
	case cohort == nil && name == "":
		return nil, nil
	case cohort == nil:
		return nil, fault.New(fault.Value, "survey %q has no cohorts", s.Name())
	case name == "":
		return nil, fault.New(fault.Value, "survey %q needs the device's cohort", s.Name())
	}
	place := slices.Index(cohort.Values, name)
	if place < 0 {
		return nil, fault.New(fault.Value, "survey %q has no cohort %q", s.Name(), name)
	}
	return &place, nil
}

// levels returns the chosen levels by attribute, -1 for none.
func (s *Survey) levels(chosen map[string]string) ([]int, error) {
	levels := slices.Repeat([]int{-1}, len(s.inner.Mechanisms))
	for attribute, name := range chosen {
		place, err := s.inner.Place(attribute)
		if err != nil {
			return nil, err
		}
		for i, level := range s.inner.Text.Attribute[place].Level {
			if level.Name == name {
				levels[place] = i
			}
		}
		if levels[place] < 0 {
			return nil, fault.New(fault.Value, "attribute %q has no level %q", attribute, name)
		}
	}
	return levels, nil
}
