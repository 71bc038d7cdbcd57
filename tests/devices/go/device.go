package ldpdevice

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Errors of a call.
var (
	ErrValue         = errors.New("ValueError")
	ErrStepForgotten = errors.New("StepForgotten")
	ErrClockWentBack = errors.New("ClockWentBack")
	ErrEnrolled      = errors.New("AlreadyEnrolled")
)

// Sealed is an envelope with its idempotency key. It may leave the device.
type Sealed struct {
	Step     int64  `json:"step"`
	Envelope []byte `json:"envelope"`
	Key      string `json:"key"`
	Settled  bool   `json:"settled"`
}

type answers struct {
	Level    int              `json:"level"`
	Fake     *int64           `json:"fake"`
	Function int64            `json:"function"`
	Phase    int64            `json:"phase"`
	Memos    map[int64][]byte `json:"memos"`
	Reports  int64            `json:"reports"`
	Kept     []Sealed         `json:"kept"`
	Dropped  []int64          `json:"dropped"`
	Over     *int64           `json:"over"`
}

type state struct {
	Pin        string    `json:"pin"`
	Sampled    int       `json:"sampled"`
	Attributes []answers `json:"attributes"`
}

// Device answers one survey for one person. One goroutine uses it at a time.
type Device struct {
	survey *Survey
	store  Store
	draws  Draws
	state  state
	cohort *int
}

// SetCohort sets the cohort of all further reports; it returns ErrValue if the survey does not have it.
func (d *Device) SetCohort(name string) error {
	if d.survey.Canonical.Cohort != nil {
		if i := slices.Index(d.survey.Canonical.Cohort.Values, name); i >= 0 {
			d.cohort = &i
			return nil
		}
	}
	return fmt.Errorf("%w: the survey has no cohort %q", ErrValue, name)
}

// Enrol makes the choices of a new device and stores them. Levels has the levels by attribute; others get the first level.
func Enrol(survey *Survey, store Store, random io.Reader, levels map[string]string) (device *Device, err error) {
	defer catch(&err)
	if text, err := store.Load(); err != nil || len(text) > 0 {
		return nil, errors.Join(err, fmt.Errorf("%w: the store has an enrolled device", ErrEnrolled))
	}
	d := &Device{survey: survey, store: store, draws: Draws{random}}
	attributes := survey.Canonical.Attribute
	fresh := state{survey.Pin, int(d.draws.below(int64(len(attributes)))), nil}
	for i, a := range attributes {
		one := answers{Memos: map[int64][]byte{}}
		if name, given := levels[a.Name]; given {
			one.Level = slices.IndexFunc(a.Level, func(l Level) bool { return l.Name == name })
			if one.Level < 0 {
				return nil, fmt.Errorf("attribute %q has no level %q", a.Name, name)
			}
		}
		p := &survey.Mechanisms[i][one.Level]
		if survey.Canonical.Collection == "rs+fd" && i != fresh.Sampled {
			fake := d.draws.below(p.K)
			one.Fake = &fake
		}
		if mechanisms[p.Mechanism].memoized && p.Functions > 0 {
			one.Function = d.draws.below(p.Functions)
		}
		one.Phase = d.draws.below(p.EverySteps)
		fresh.Attributes = append(fresh.Attributes, one)
	}
	return d, d.save(fresh)
}

// Open continues with an enrolled device.
func Open(survey *Survey, store Store, random io.Reader) (*Device, error) {
	d := &Device{survey: survey, store: store, draws: Draws{random}}
	text, err := store.Load()
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("%w: the store is empty", ErrStoreCleared)
	}
	if err := json.Unmarshal(text, &d.state); err != nil {
		return nil, err
	}
	if d.state.Pin != survey.Pin {
		return nil, fmt.Errorf("%w: the store belongs to %s", ErrWrongSurvey, d.state.Pin)
	}
	return d, nil
}

func catch(err *error) {
	if r := recover(); r != nil {
		failed, ok := r.(sourceFailed)
		if !ok {
			panic(r)
		}
		*err = failed
	}
}

func (d *Device) save(next state) error {
	text, err := json.Marshal(next)
	if err == nil {
		err = d.store.Save(text)
	}
	if err == nil {
		d.state = next
	}
	return err
}

// ReportNow is Report at the step of the clock's time.
func (d *Device) ReportNow(attribute int, value any, now time.Time) (*Sealed, error) {
	sealed, err := d.Report(attribute, value, d.survey.Step(now))
	if errors.Is(err, ErrStepForgotten) {
		err = fmt.Errorf("%w: the present step is too old to report", ErrClockWentBack)
	}
	return sealed, err
}

// Step returns the step of a time; it is below 0 before the survey's start.
func (s *Survey) Step(now time.Time) int64 {
	since, length := now.UnixMilli()-s.Canonical.Start, 1000*s.Canonical.StepSeconds
	if since < 0 {
		return -1
	}
	return since / length
}

// Report returns the sealed report of an attribute's value at a step, or nil if the device makes none.
func (d *Device) Report(attribute int, value any, step int64) (sealed *Sealed, err error) {
	defer catch(&err)
	v, err := d.survey.Canonical.Attribute[attribute].Index(value)
	if err != nil {
		return nil, err
	}
	if d.survey.Canonical.Cohort != nil && d.cohort == nil {
		return nil, fmt.Errorf("%w: the survey needs a cohort", ErrValue)
	}
	if step < 0 {
		return nil, fmt.Errorf("%w: a step is at least 0, got %d", ErrValue, step)
	}
	one := d.state.Attributes[attribute]
	p := &d.survey.Mechanisms[attribute][one.Level]
	silent := d.survey.Canonical.Collection == "smp" && attribute != d.state.Sampled
	ended := d.survey.Canonical.Ends != nil && step >= *d.survey.Canonical.Ends
	if silent || ended || step%p.EverySteps != one.Phase {
		return nil, nil
	}
	for _, kept := range one.Kept {
		if kept.Step == step {
			return &kept, nil
		}
	}
	if p.LifetimeReports != nil && one.Reports >= *p.LifetimeReports {
		return nil, nil
	}
	if one.Over != nil && step <= *one.Over || slices.Contains(one.Dropped, step) {
		return nil, fmt.Errorf("%w: attribute %d, step %d", ErrStepForgotten, attribute, step)
	}
	if one.Fake != nil {
		v = *one.Fake
	}
	row := d.row(p, &one, v)
	fresh := Sealed{step, Seal(d.survey.Fingerprint, attribute, one.Level, step, 1, d.cohort, row),
		base64.RawURLEncoding.EncodeToString(d.draws.bytes(16)), false}
	one.Reports++
	one.keep(fresh, int(d.survey.Canonical.LatenessSteps)+26)
	if err := d.replace(attribute, one); err != nil {
		return nil, err
	}
	return &fresh, nil
}

// replace saves the state with new answers of one attribute.
func (d *Device) replace(attribute int, one answers) error {
	next := d.state
	next.Attributes = slices.Clone(d.state.Attributes)
	next.Attributes[attribute] = one
	return d.save(next)
}

// Settle marks an envelope as settled: the gateway's answer to it is final.
func (d *Device) Settle(attribute int, step int64) error {
	one := d.state.Attributes[attribute]
	one.Kept = slices.Clone(one.Kept)
	latest := int(d.survey.Canonical.LatenessSteps) + 2
	for i := len(one.Kept) - 1; i >= 0; i-- {
		if one.Kept[i].Step == step {
			one.Kept[i].Settled = true
		}
		if one.Kept[i].Settled {
			if latest--; latest == 0 {
				one.forget(one.Kept[i].Step - 1)
				one.Kept = one.Kept[i:]
				break
			}
		}
	}
	return d.replace(attribute, one)
}

// row draws the row of value v; a new memo goes into a copy of the memos.
func (d *Device) row(p *Parameters, one *answers, v int64) []byte {
	k := mechanisms[p.Mechanism]
	if !k.memoized {
		return p.once(d.draws, v)
	}
	key := k.key(p, v, one.Function)
	memo, known := one.Memos[key]
	if !known {
		memo = k.first(p, d.draws, p.Coins["memo"], key, one.Function)
		memos := map[int64][]byte{key: memo}
		for other, m := range one.Memos {
			memos[other] = m
		}
		one.Memos = memos
	}
	return k.second(p, d.draws, memo)
}

// keep adds an envelope. Above the limit of unsettled ones it drops the one farthest from the new step.
func (a *answers) keep(fresh Sealed, limit int) {
	a.Kept = append(slices.Clone(a.Kept), fresh)
	slices.SortFunc(a.Kept, func(x, y Sealed) int { return int(min(max(x.Step-y.Step, -1), 1)) })
	waiting, farthest := 0, -1
	for i, kept := range a.Kept {
		if !kept.Settled {
			waiting++
			if farthest < 0 || apart(kept, fresh) > apart(a.Kept[farthest], fresh) {
				farthest = i
			}
		}
	}
	if waiting > limit {
		a.Dropped = append(slices.Clone(a.Dropped), a.Kept[farthest].Step)
		a.Kept = slices.Delete(a.Kept, farthest, farthest+1)
	}
	if len(a.Dropped) > 10000 {
		a.forget(slices.Min(a.Dropped))
	}
}

func apart(x, y Sealed) int64 { return max(x.Step-y.Step, y.Step-x.Step) }

// forget remembers that no step up to this one is to be reported.
func (a *answers) forget(step int64) {
	if a.Over == nil || *a.Over < step {
		a.Over = &step
	}
	a.Dropped = slices.DeleteFunc(slices.Clone(a.Dropped), func(dropped int64) bool { return dropped <= step })
}
