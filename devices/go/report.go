package device

import (
	"encoding/base64"

	"ldpstream/device/internal/fault"
	"ldpstream/device/internal/mechanism"
	"ldpstream/device/internal/state"
	"ldpstream/device/internal/wire"
)

const (
	mostStep = 1 << 62
	ahead    = 24 // so many reports of future steps, made while the clock runs ahead, displace no report of a true step
	keyBytes = 16
)

// Report returns the envelope with this device's report of a value at the present step, or nil if the device makes no report: see
// [Device.Silence]. The first call for a step draws the report; later calls return the same bytes while the envelope is kept.
//
// It returns [ErrValue] if there is no such attribute, value or step, [ErrStepForgotten] if the step can no longer be reported
// ([ErrClockWentBack] for the present step), and [ErrStoreCleared], [ErrStoreHeld], [ErrStoreFull], [ErrWrongSurvey] or [ErrStore]
// for the store.
func (d *Device) Report(attribute string, value any) ([]byte, error) {
	return d.reportOne(attribute, value, nil)
}

// ReportAt is [Device.Report] for another step.
func (d *Device) ReportAt(attribute string, value any, step int64) ([]byte, error) {
	return d.reportOne(attribute, value, &step)
}

func (d *Device) reportOne(attribute string, value any, step *int64) ([]byte, error) {
	place, err := d.survey.inner.Place(attribute)
	if err != nil {
		return nil, err
	}
	index, err := d.survey.inner.Text.Attribute[place].Index(value)
	if err != nil {
		return nil, err
	}
	return d.report(given{place, index}, step)
}

func (d *Device) report(value given, named *int64) (envelope []byte, err error) {
	step, err := d.step(named)
	if err != nil {
		return nil, err
	}
	err = d.transaction(func(kept *state.State) (*state.State, error) {
		if d.muted(kept)[value.attribute] != "" {
			return kept, nil
		}
		enrolled, err := d.enrolled(kept)
		if err != nil {
			return nil, err
		}
		answers := enrolled.Attributes[value.attribute]
		if d.silent(value.attribute, answers, step) != "" {
			return kept, nil
		}
		envelope, err = d.reportOf(answers, value, step, named != nil)
		return kept, err
	})
	return envelope, err
}

// reportOf returns the kept or new envelope of a step at which the device reports; named if the caller named the step.
func (d *Device) reportOf(answers *state.Answers, value given, step int64, named bool) ([]byte, error) {
	if sealed, kept := answers.Kept[step]; kept {
		return sealed.Envelope, nil
	}
	if answers.IsOver(step) {
		kind := fault.ClockWentBack
		if named {
			kind = fault.StepForgotten
		}
		return nil, fault.New(kind, "attribute %q: step %d can no longer be reported", d.nameOf(value.attribute), step)
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	draws := mechanism.NewDraws(d.random)
	if answers.Fake != nil {
		value.index = *answers.Fake
	}
	row := rowOf(d.survey.inner.Mechanisms[value.attribute][answers.Level], answers, draws, value.index)
	envelope := wire.Seal(wire.Head{Fingerprint: d.survey.inner.Fingerprint, Attribute: value.attribute, Level: answers.Level,
		Step: uint64(step), Cohort: d.cohort}, 1, row)
	key, due := base64.RawURLEncoding.EncodeToString(draws.Bytes(keyBytes)), int64(0)
	if d.survey.NeedsRelay() {
		due = d.survey.inner.Moment(step+1, draws.Below(d.survey.inner.Text.StepSeconds), draws.Below(1000))
	}
	if err := draws.Err(); err != nil {
		return nil, fault.New(fault.Random, "%w", err)
	}
	answers.Keep(step, state.Sealed{Envelope: envelope, Key: &key, DueMs: due}, d.latest()+ahead)
	return envelope, nil
}

// rowOf draws the row of value v; a new memo goes into the state.
func rowOf(p *mechanism.Parameters, answers *state.Answers, draws *mechanism.Draws, v int64) []byte {
	if !p.Memoized() {
		return p.Once(draws, v)
	}
	key := p.MemoKey(v, answers.Function)
	memo, known := answers.Memos[key]
	if !known {
		memo.Row = p.Memo(draws, key, answers.Function)
	}
	memo.Reports++
	answers.Memos[key] = memo
	return p.FromMemo(draws, memo.Row)
}

// latest is the number of settled envelopes that are kept: the service takes the present step, late steps, and the next step.
func (d *Device) latest() int64 {
	return min(d.survey.inner.Text.LatenessSteps, mostStep) + 2
}

// step returns the named or present step; the present one is negative before the survey's start.
func (d *Device) step(named *int64) (int64, error) {
	step := d.survey.StepAt(d.clock())
	if named == nil {
		return min(step, mostStep), nil
	}
	if *named < 0 || *named > mostStep {
		return 0, fault.New(fault.Value, "a step must be from 0 to 2^62, got %d", *named)
	}
	return *named, nil
}

// Silence tells why the device makes no report of an attribute at the present step, whatever the value. The errors are those of
// [Device.Report], but not [ErrStepForgotten].
func (d *Device) Silence(attribute string) (Silence, error) { return d.silence(attribute, nil) }

// SilenceAt is [Device.Silence] for another step.
func (d *Device) SilenceAt(attribute string, step int64) (Silence, error) {
	return d.silence(attribute, &step)
}

func (d *Device) silence(attribute string, named *int64) (reason Silence, err error) {
	place, err := d.survey.inner.Place(attribute)
	if err != nil {
		return "", err
	}
	step, err := d.step(named)
	if err != nil {
		return "", err
	}
	err = d.transaction(func(kept *state.State) (*state.State, error) {
		if reason = d.muted(kept)[place]; reason != "" {
			return kept, nil
		}
		enrolled, err := d.enrolled(kept)
		if err == nil {
			reason = d.silent(place, enrolled.Attributes[place], step)
		}
		return kept, err
	})
	return reason, err
}

func (d *Device) silent(place int, answers *state.Answers, step int64) Silence {
	p, ends := d.survey.inner.Mechanisms[place][answers.Level], d.survey.inner.Text.Ends
	_, kept := answers.Kept[step]
	switch {
	case answers.Silent:
		return SilenceOtherAttribute
	case ends != nil && step >= *ends:
		return SilenceSurveyEnded
	case step < 0:
		return SilenceSurveyNotBegun
	case step%p.Every() != answers.Phase:
		return SilenceOtherPhase
	case p.LifetimeReports != nil && answers.Reports >= *p.LifetimeReports && !kept:
		return SilenceLifetimeReportsMade
	}
	return ""
}
