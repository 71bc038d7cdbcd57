package device

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ldpstream/device/internal/state"
	"ldpstream/device/internal/survey"
)

const mostJournal = 200

// Preview is a report that would leave now. Its text shows the bytes by their parts, and what each part can reveal.
type Preview struct {
	Attribute string
	Step      int64
	Silence   Silence // why the report does not leave now; empty if it leaves
	// Example tells that the report is not made yet. Chance then draws another one when the device reports: never send an example.
	Example  bool
	Envelope []byte // nil if the device makes no report of this step

	survey *Survey
}

// Left is a report that left, or may have left. It has the bytes that left, never a true value.
type Left struct {
	At        time.Time // of the latest attempt
	Attribute string
	Step      int64
	Envelope  []byte
	Local     bool // it left only for show: see Local of the package ldpstream/device/send
}

// Preview returns what [Device.Answer] would make and send now, and what each part can reveal. It keeps and sends nothing. It also
// shows the reports of a person who has not consented yet. A report that is not made yet is an example.
//
// The errors are those of [Device.Answer]; also [ErrWalletFull] before the enrolment, if the survey does not fit the wallet.
func (d *Device) Preview(values Values) ([]Preview, error) { return d.preview(values, nil) }

// PreviewAt is [Device.Preview] for another step.
func (d *Device) PreviewAt(values Values, step int64) ([]Preview, error) {
	return d.preview(values, &step)
}

func (d *Device) preview(values Values, named *int64) (found []Preview, err error) {
	indices, err := d.indices(values)
	if err != nil {
		return nil, err
	}
	at, err := d.step(named)
	if err != nil {
		return nil, err
	}
	err = d.read(func(kept *state.State) error {
		muted := d.muted(kept)
		shown, err := d.made(kept) // a copy, which nothing keeps
		if err != nil {
			return err
		}
		if shown.Enrolled(d.survey.Pin()) == nil {
			if err := d.enter(shown); err != nil {
				return err
			}
			for a, one := range shown.Enrolled(d.survey.Pin()).Attributes {
				one.Silent, one.Phase = false, max(at, 0)%d.survey.inner.Mechanisms[a][one.Level].Every()
			}
		}
		for _, value := range indices {
			answers := shown.Enrolled(d.survey.Pin()).Attributes[value.attribute]
			sealed, made := answers.Kept[at]
			own, reason := d.silent(value.attribute, answers, at), muted[value.attribute]
			if reason == "" {
				reason = own
			}
			if reason == "" && made && sealed.Key == nil {
				reason = SilenceAlreadyAnswered
			}
			one := Preview{Attribute: d.nameOf(value.attribute), Step: max(at, 0), Silence: reason, Example: !made, survey: d.survey}
			if own == "" && (muted[value.attribute] == "" || made || !answers.IsOver(at)) {
				if one.Envelope, err = d.reportOf(answers, value, at, named != nil); err != nil {
					return err
				}
			}
			found = append(found, one)
		}
		return nil
	})
	return found, err
}

// read runs a function on a copy of the state, whose changes nothing keeps.
func (d *Device) read(run func(kept *state.State) error) error {
	return d.store.Update(func(text []byte) ([]byte, error) {
		kept, err := decoded(text, d.store)
		if err == nil {
			err = run(kept)
		}
		return text, err
	})
}

// Leaves writes a waiting report into the journal. A program that sends by itself calls this before each attempt, and sends nothing
// if the result is false: consent was withdrawn, devices are switched off, or the report does not wait any more. Local tells that
// the report leaves only for show.
//
// The errors are those of [Device.Report].
func (d *Device) Leaves(key string, local bool) (leaves bool, err error) {
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
			step := keyed(answers, key)
			if step < 0 || muted[a] != "" {
				continue
			}
			leaves = true
			before := func(left state.Left) bool { return left.Key == key }
			sent := slices.ContainsFunc(enrolled.Journal, func(left state.Left) bool { return before(left) && !left.Local })
			enrolled.Journal = append(slices.DeleteFunc(enrolled.Journal, before), state.Left{AtMs: d.clock().UnixMilli(),
				Attribute: d.nameOf(a), Step: step, Envelope: answers.Kept[step].Envelope, Local: local && !sent, Key: key})
			enrolled.Journal = enrolled.Journal[max(0, len(enrolled.Journal)-mostJournal):]
		}
		return kept, nil
	})
	return leaves && err == nil, err
}

// Journal returns the last reports that left this device or may have left it, the latest last. The errors are those of
// [Device.Report].
func (d *Device) Journal() (journal []Left, err error) {
	err = d.transaction(func(kept *state.State) (*state.State, error) {
		if err := d.another(kept); err != nil {
			return nil, err
		}
		if enrolled := kept.Enrolled(d.survey.Pin()); enrolled != nil {
			for _, one := range enrolled.Journal {
				journal = append(journal, Left{time.UnixMilli(one.AtMs), one.Attribute, one.Step, one.Envelope, one.Local})
			}
		}
		return kept, nil
	})
	return journal, err
}

// String returns the report's bytes by their parts, and what each part can reveal.
func (p Preview) String() string {
	head := fmt.Sprintf("%s, step %d: ", survey.Shown(p.Attribute), p.Step)
	if p.Envelope == nil {
		return fmt.Sprintf("%snothing leaves (%s).", head, p.Silence)
	}
	kind := "made, and the same until the step ends"
	if p.Example {
		kind = "an example, which chance draws anew"
	}
	leaves, sees := "leaves with the next attempt", "gateway"
	if p.survey.NeedsRelay() {
		leaves, sees = "leaves at its random moment", "relay"
	}
	if p.Silence != "" {
		leaves = fmt.Sprintf("nothing leaves now (%s)", p.Silence)
	}
	lines := []string{fmt.Sprintf("%s%d bytes; %s; %s.", head, len(p.Envelope), kind, leaves)}
	for _, part := range p.survey.inner.Explained(p.Envelope) {
		lines = append(lines, fmt.Sprintf("%x  %s", part.Data, part.Reveals))
	}
	end := fmt.Sprintf("Beside it: a random key, drawn for this report alone; the %s sees your network address.", sees)
	return strings.Join(append(lines, end), "\n")
}
