package device

import (
	"maps"
	"time"

	"ldpstream/device/internal/fault"
	"ldpstream/device/internal/state"
)

const (
	mostEvents   = 100
	mostDuration = 1_000_000 * time.Second
	firstDay     = 18_262 // 2020-01-01: a clock that shows an earlier day was never set
	dayMs        = 86_400_000
)

// Activity is the log of an application's use, in one store that its processes and goroutines share. It contains the true use.
//
// All values of a step follow from the days before the step: every call within a step gives the same values.
type Activity struct {
	store Store
	clock func() time.Time
	off   bool
}

// OpenActivity opens the log of a store, which is not the store of a device. It records nothing while devices are switched off.
// Record the use only with the person's consent: see [Device.Consent].
//
// It returns [ErrStoreHeld], [ErrStoreFull] or [ErrStore] if the store cannot be used. The log then stays as it is.
func OpenActivity(store Store) (*Activity, error) { return OpenActivityWith(store, time.Now) }

// OpenActivityWith is [OpenActivity] with another clock, for tests only.
func OpenActivityWith(store Store, clock func() time.Time) (*Activity, error) {
	a := &Activity{store, clock, SwitchedOff() != ""}
	if _, err := a.log(); err != nil {
		return nil, err
	}
	return a, nil
}

// Seen records that the application was used today. The errors are those of [OpenActivity].
func (a *Activity) Seen() error { return a.record(state.Seen, 0) }

// Used records an event, whose name stands in the application's code and is never a text of the person.
//
// It returns [ErrValue] if the name does not have 1 to 64 letters, digits, dots, underscores or hyphens, or is the 101st of the
// day; the other errors are those of [OpenActivity].
func (a *Activity) Used(event string) error { return a.Took(event, 0) }

// Took records an event and its duration, from 0 to 10^6 seconds. The errors are those of [Activity.Used]; also [ErrValue] if the
// duration is out of range.
func (a *Activity) Took(event string, duration time.Duration) error {
	if !isEvent(event) {
		return fault.New(fault.Value, "an event has 1 to 64 letters, digits, dots, underscores or hyphens")
	}
	if duration < 0 || duration > mostDuration {
		return fault.New(fault.Value, "the duration of an event must be from 0 to 10^6 seconds")
	}
	return a.record(event, duration.Milliseconds())
}

func isEvent(name string) bool {
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || r != '.' && r != '_' && r != '-') {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= 64
}

func (a *Activity) record(event string, durationMs int64) error {
	day := a.clock().UnixMilli() / dayMs
	if day < firstDay || a.off {
		return nil
	}
	return a.update(func(log *state.Log) error {
		if log.Record(day, event, durationMs) > mostEvents {
			return fault.New(fault.Value, "a day has at most %d different events", mostEvents)
		}
		return nil
	})
}

// Answer reports the attributes with a recipe at the present step, and other values: see [Device.Answer]. A device reports the
// attributes with a recipe only at steps at which the application was used. So their reports count the people who used it.
//
// The errors are those of [Device.Answer]; also [ErrValue] for a value of an attribute with a recipe.
func (a *Activity) Answer(device *Device, values Values) (map[string][]byte, error) {
	all, step, err := a.given(device, values)
	if err != nil || step < 0 {
		return nil, err
	}
	return device.AnswerAt(all, step)
}

// Preview returns what [Activity.Answer] would make and send now: see [Device.Preview]. The errors are those of [Activity.Answer].
func (a *Activity) Preview(device *Device, values Values) ([]Preview, error) {
	all, step, err := a.given(device, values)
	if err != nil || step < 0 {
		return nil, err
	}
	return device.PreviewAt(all, step)
}

// given returns all values at the present step, which is negative before the survey's start.
func (a *Activity) given(device *Device, values Values) (all Values, step int64, err error) {
	for _, asked := range device.survey.Attributes() {
		if _, given := values[asked.Name]; given && asked.HasRecipe {
			return nil, 0, fault.New(fault.Value, "%q has a recipe: give no value, since the device computes it", asked.Name)
		}
	}
	all, step = maps.Clone(values), device.survey.StepAt(a.clock())
	if all == nil {
		all = Values{}
	}
	computed, err := a.Values(device.survey, step)
	for name, value := range computed {
		all[name] = value
	}
	return all, step, err
}

// Values returns the values of the attributes with a recipe at a step, by name; none for a step without use of the application.
// The errors are those of [OpenActivity].
func (a *Activity) Values(survey *Survey, step int64) (map[string]float64, error) {
	log, err := a.log()
	if err != nil {
		return nil, err
	}
	return log.Values(survey.inner, step), nil
}

// Forget erases the log permanently. The errors are those of [OpenActivity].
func (a *Activity) Forget() error {
	return a.update(func(log *state.Log) error {
		clear(log.Days)
		return nil
	})
}

func (a *Activity) log() (found *state.Log, err error) {
	err = a.update(func(log *state.Log) error {
		found = log
		return nil
	})
	return found, err
}

func (a *Activity) update(change func(log *state.Log) error) error {
	return a.store.Update(func(text []byte) ([]byte, error) {
		log := &state.Log{Days: map[int64]map[string]state.Calls{}}
		if len(text) > 0 {
			log.Days = nil
			if err := state.Decode(text, a.store.String(), log); err != nil {
				return nil, err
			}
		}
		if err := change(log); err != nil {
			return nil, err
		}
		return state.Encode(log), nil
	})
}
