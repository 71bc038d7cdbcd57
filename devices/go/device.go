// Package device is one person's ldpstream client: it answers a survey under local differential privacy.
//
// A program asks a question of each installation. The device draws the answer's report, keeps it through crashes, and gives it to
// a sender: see the package ldpstream/device/send. No report proves anybody's answer. The service estimates how common each
// answer is. The store may contain true values: keep it as private as the program's other data.
package device

import (
	"io"
	"slices"
	"sync"
	"time"

	"ldpstream/device/internal/fault"
	"ldpstream/device/internal/state"
)

// Options are what the application requires of the survey, and what the person chose. The zero value asks for consent and requires
// nothing.
type Options struct {
	// Levels has the level that the person chose, by attribute; otherwise it is the first one. The first use fixes the levels.
	Levels map[string]string
	// ExpectEnrolled says that this device has enrolled before: an empty store is then an error.
	ExpectEnrolled bool
	// Pin is the pin of the survey that the application expects, as 64 hexadecimal digits; empty for no check.
	Pin string
	// MaxEps is the largest allowed loss of all reports while the values stay the same, in nats; 0 for no limit.
	MaxEps float64
	// Cohort is the device's present cohort, for a survey with cohorts. It travels in clear: it must not depend on a value.
	Cohort string
	// SignedBy has public keys in base64, one of which must have signed the survey; empty for no check.
	SignedBy []string
	// AlsoSignedBy has other public keys, one of which must also have signed the survey; empty for no second signature.
	AlsoSignedBy []string
	// Consent says how the program asks the person.
	Consent ConsentMode
	// Random is the source of random bytes, for tests only; nil for the system's generator.
	Random io.Reader
}

// Values has a person's values by attribute: a text, a number of any type, or a slice for a pair and for several answers.
type Values map[string]any

// Waiting is a report that may need another attempt.
type Waiting struct {
	Attribute string
	Step      int64
	Envelope  []byte    // the bytes to send
	Key       string    // the Idempotency-Key of all attempts
	Due       time.Time // the report may leave from this time on; zero without a relay
}

// Silence says why a device makes no report, whatever the value. It is empty if the device makes one.
type Silence string

// The reasons.
const (
	SilenceSwitchedOff         Silence = "switched off" // see [SwitchedOff]
	SilenceConsentUnknown      Silence = "consent unknown"
	SilenceConsentWithdrawn    Silence = "consent withdrawn"
	SilenceOtherAttribute      Silence = "other attribute" // the device answers another one (smp)
	SilenceOtherPhase          Silence = "other phase"     // the device reports at other steps, which are every_steps apart
	SilenceLifetimeReportsMade Silence = "lifetime reports made"
	SilenceSurveyEnded         Silence = "survey ended"
	SilenceSurveyNotBegun      Silence = "survey not begun" // by the device's clock
	SilenceAlreadyAnswered     Silence = "already answered" // only in a preview: the gateway's answer to the report was final
)

// Spent is the loss of a device's reports of one attribute, in nats. It depends on the values: keep it private.
type Spent struct {
	Reports   int64    // the number of distinct steps
	EpsT      *float64 // a bound between the values and any unchanged value; nil after reports from several memos
	AnyValues float64  // a bound between any two sequences of values
}

// Device is a person's device, which answers one survey with sanitized reports. Goroutines may share it.
//
// Processes and goroutines that share one store are one device. Until [Device.Forget], a memo is durable before the first report
// from it leaves; a step has at most one report of an attribute; and an envelope has one key.
type Device struct {
	survey    *Survey
	store     Store
	inWallet  bool
	levels    []int
	mode      ConsentMode
	startsOff bool // such a device has no enrolment, and stays off
	cohort    *int
	clock     func() time.Time

	mutex   sync.Mutex
	random  io.Reader    // under the mutex
	stopped map[int]bool // attributes that the person withdrew, until the store has the withdrawal; under the mutex
}

// String shows nothing of the person.
func (d *Device) String() string { return "<Device>" }

// GoString shows nothing of the person.
func (d *Device) GoString() string { return "<Device>" }

// Open opens the device of a store. The consent, or with another [ConsentMode] the first use, enrolls it permanently. A device
// needs no closing: the store holds no open file between two calls.
//
// It returns [ErrWrongSurvey], [ErrNotSigned], [ErrCostlySurvey] or [ErrValue] if the survey is not as required, and
// [ErrStoreCleared], [ErrStoreHeld], [ErrStoreFull] or [ErrStore] if the store cannot be used.
func Open(survey *Survey, store Store, options Options) (*Device, error) {
	return open(survey, store, options, time.Now, false)
}

// Survey returns the survey that this device answers.
func (d *Device) Survey() *Survey { return d.survey }

// Answer reports several attributes at the present step, and the survey's pairs of them. It returns the envelopes by attribute; an
// attribute without a report is missing. All values are checked before the first report.
//
// The errors are those of [Device.Report].
func (d *Device) Answer(values Values) (map[string][]byte, error) { return d.answer(values, nil) }

// AnswerAt is [Device.Answer] for another step.
func (d *Device) AnswerAt(values Values, step int64) (map[string][]byte, error) {
	return d.answer(values, &step)
}

func (d *Device) answer(values Values, step *int64) (map[string][]byte, error) {
	indices, err := d.indices(values)
	if err != nil {
		return nil, err
	}
	made := map[string][]byte{}
	for _, one := range indices {
		envelope, err := d.report(one, step)
		if err != nil {
			return made, err
		}
		if envelope != nil {
			made[d.nameOf(one.attribute)] = envelope
		}
	}
	return made, nil
}

// given is the index of a value, for an attribute's number.
type given struct {
	attribute int
	index     int64
}

// indices returns the values' indices in the survey's order, with the pairs of which both values are given.
func (d *Device) indices(values Values) (all []given, err error) {
	for name := range values {
		if _, err := d.survey.inner.Place(name); err != nil {
			return nil, err
		}
	}
	for i, a := range d.survey.inner.Text.Attribute {
		value, has := values[a.Name]
		if a.IsPair() {
			if has {
				return nil, fault.New(fault.Value, "%q is a pair: give the values of its two attributes", a.Name)
			}
			first, hasFirst := values[a.Parts[0].Name]
			second, hasSecond := values[a.Parts[1].Name]
			value, has = []any{first, second}, hasFirst && hasSecond
		}
		if has {
			index, err := a.Index(value)
			if err != nil {
				return nil, err
			}
			all = append(all, given{i, index})
		}
	}
	return all, nil
}

// Waiting returns the kept reports that are not settled, by step; without consent, none. The errors are those of [Device.Report].
func (d *Device) Waiting() (waiting []Waiting, err error) {
	err = d.transaction(func(kept *state.State) (*state.State, error) {
		muted := d.muted(kept)
		if !slices.Contains(muted, "") {
			return kept, nil
		}
		enrolled, err := d.enrolled(kept)
		if err != nil {
			return nil, err
		}
		for a, answers := range enrolled.Attributes {
			if muted[a] != "" {
				continue
			}
			for _, step := range answers.Steps(false) {
				sealed := answers.Kept[step]
				one := Waiting{Attribute: d.nameOf(a), Step: step, Envelope: sealed.Envelope, Key: *sealed.Key}
				if sealed.DueMs != 0 {
					one.Due = time.UnixMilli(sealed.DueMs)
				}
				waiting = append(waiting, one)
			}
		}
		return kept, nil
	})
	slices.SortStableFunc(waiting, func(x, y Waiting) int { return int(max(-1, min(x.Step-y.Step, 1))) })
	return waiting, err
}

// Settle marks the report with this key as settled: the gateway's answer to it is final, and no further attempt is needed. The
// errors are those of [Device.Report].
func (d *Device) Settle(key string) error {
	return d.transaction(func(kept *state.State) (*state.State, error) {
		if enrolled := kept.Enrolled(d.survey.Pin()); enrolled != nil {
			for _, answers := range enrolled.Attributes {
				if step := keyed(answers, key); step >= 0 {
					answers.Settle(step, d.latest())
				}
			}
		}
		return kept, nil
	})
}

// keyed returns the step of the envelope with a key, or -1.
func keyed(answers *state.Answers, key string) int64 {
	for step, sealed := range answers.Kept {
		if sealed.Key != nil && *sealed.Key == key {
			return step
		}
	}
	return -1
}

// Spent returns the loss of an attribute's reports so far. The errors are those of [Device.Report].
func (d *Device) Spent(attribute string) (spent Spent, err error) {
	place, err := d.survey.inner.Place(attribute)
	if err != nil {
		return spent, err
	}
	err = d.transaction(func(kept *state.State) (*state.State, error) {
		enrolled, err := d.enrolled(kept)
		if err != nil {
			return nil, err
		}
		answers := enrolled.Attributes[place]
		p := d.survey.inner.Mechanisms[place][answers.Level]
		memos, reports := 0, int64(0)
		for _, memo := range answers.Memos {
			if memo.Reports > 0 {
				memos, reports = memos+1, reports+memo.Reports
			}
		}
		spent = Spent{Reports: answers.Reports, AnyValues: float64(answers.Reports) * p.AnyValues()}
		if erased := p.Memoized() && reports < answers.Reports; memos <= 1 && !erased { // erased by a withdrawal
			epsT := p.EpsT(answers.Reports)
			spent.EpsT = &epsT
		}
		return kept, nil
	})
	return spent, err
}

// Forget erases memos, enrolment and envelopes permanently. The next use of the store enrolls again. The losses of earlier reports
// remain: those of new reports add to them.
//
// It returns [ErrValue] if confirm is not the survey's name; the other errors are those of [Device.Report].
func (d *Device) Forget(confirm string) error {
	if confirm != d.survey.Name() {
		return fault.New(fault.Value, "confirm must be the survey's name, %q", d.survey.Name())
	}
	return d.transaction(func(kept *state.State) (*state.State, error) {
		if slices.Contains(d.muted(kept), "") {
			if _, err := d.enrolled(kept); err != nil {
				return nil, err
			}
		} else if err := d.another(kept); err != nil {
			return nil, err
		}
		if kept == nil || !d.inWallet {
			return nil, nil
		}
		delete(kept.Consents, d.survey.Pin())
		d.erase(kept)
		return kept, nil
	})
}

// erase erases the enrolment, and what a wallet does not need.
func (d *Device) erase(kept *state.State) {
	if d.inWallet {
		kept.Leave(d.survey.Pin(), d.survey.inner.OpensMs)
	} else {
		kept.Surveys = []*state.Enrolled{}
	}
}

func (d *Device) transaction(run func(kept *state.State) (*state.State, error)) error {
	return transaction(d.store, run)
}

func (d *Device) nameOf(place int) string { return d.survey.inner.Text.Attribute[place].Name }
