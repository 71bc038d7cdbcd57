package device

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"ldpstream/device/internal/fault"
	"ldpstream/device/internal/state"
)

// Consent is a person's answer to a survey or an attribute. The store keeps it with the terms that the person agreed to. If the
// survey's purpose or owner changes, or the service keeps the results longer, the consent is unknown, so the program asks again. A
// new version of a survey has another pin: it always asks.
type Consent string

// The answers.
const (
	ConsentUnknown   Consent = "unknown" // the program has not asked the person, or has to ask again
	ConsentGiven     Consent = "given"
	ConsentWithdrawn Consent = "withdrawn" // the person disagreed
)

// ConsentMode is how a program asks for consent. A withdrawal in the store counts always.
type ConsentMode int

// The modes.
const (
	// ModeAsked keeps the person's answer. The device does nothing before [Device.GiveConsent].
	ModeAsked ConsentMode = iota
	// ModeGiven says that the program has asked the person in another way, and the person agreed.
	ModeGiven
	// ModeSimulated says that there is no person, so the switches that turn devices off do not count.
	ModeSimulated
)

// SwitchedOff returns the switch that turns all devices off: a variable's name, or the path of the operator's file; empty for no
// switch.
//
// The variables are DO_NOT_TRACK and CI, unless they are empty, 0, false or no. The file is /etc/ldpstream/off, or
// %ProgramData%\ldpstream\off. A file that the device may not look for counts as present.
func SwitchedOff() string {
	for _, name := range []string{"DO_NOT_TRACK", "CI"} {
		text := strings.ToLower(strings.TrimSpace(os.Getenv(name)))
		if !slices.Contains([]string{"", "0", "false", "no"}, text) {
			return name
		}
	}
	folder := "/etc"
	if given, set := os.LookupEnv("PROGRAMDATA"); set {
		folder = given
	}
	file := filepath.Join(folder, "ldpstream", "off")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return ""
	}
	return file
}

// Question returns the text by which the program asks for consent, as plain text in several lines.
func (d *Device) Question() string { return d.survey.inner.Question(d.levels) }

// Consent returns the person's consent to the survey: unknown if that to an attribute is unknown, else given if one is given. The
// errors are those of [Device.Report].
func (d *Device) Consent() (Consent, error) {
	all, err := d.states()
	for _, one := range []Consent{ConsentUnknown, ConsentGiven} {
		if slices.Contains(all, one) {
			return one, err
		}
	}
	return ConsentWithdrawn, err
}

// ConsentTo returns the person's consent to an attribute. The errors are those of [Device.Report].
func (d *Device) ConsentTo(attribute string) (Consent, error) {
	place, err := d.survey.inner.Place(attribute)
	if err != nil {
		return "", err
	}
	all, err := d.states()
	if err != nil {
		return "", err
	}
	return all[place], nil
}

// ToAsk returns the attributes about which the program has to ask the person; none while devices are switched off. The errors are
// those of [Device.Report].
func (d *Device) ToAsk() (names []string, err error) {
	if d.off() {
		return nil, nil
	}
	all, err := d.states()
	for a, one := range all {
		if one == ConsentUnknown {
			names = append(names, d.nameOf(a))
		}
	}
	return names, err
}

// GiveConsent keeps the person's consent to some attributes, or to all without an argument. It enrolls the device permanently.
// While devices are switched off, it does nothing. After a withdrawal the device enrolls again, with a fresh budget.
//
// It returns [ErrWalletFull] if the survey does not fit the wallet: nothing is kept. The other errors are those of
// [Device.Report].
func (d *Device) GiveConsent(attributes ...string) error {
	places, err := d.places(attributes)
	if err != nil || d.off() {
		return err
	}
	err = d.transaction(func(kept *state.State) (*state.State, error) {
		kept, err := d.made(kept)
		if err == nil && kept.Enrolled(d.survey.Pin()) == nil {
			err = d.enter(kept)
		}
		if err == nil {
			d.keepAnswer(kept, places, d.terms())
		}
		return kept, err
	})
	if err == nil {
		d.restart(places)
	}
	return err
}

// WithdrawConsent withdraws the consent to some attributes, or to all without an argument; before any consent, it keeps that the
// person refused.
//
// Nothing more is sent: the device drops the waiting reports. It keeps nothing but the withdrawal, and sends no event. If consent to
// other attributes remains, it also keeps the choices of its enrolment and which steps it reported.
//
// The errors are those of [Device.Report]. The store may keep the consent then, but this object sends nothing more.
func (d *Device) WithdrawConsent(attributes ...string) error {
	places, err := d.places(attributes)
	if err != nil {
		return err
	}
	d.mutex.Lock()
	for _, a := range places {
		d.stopped[a] = true
	}
	d.mutex.Unlock()
	err = d.transaction(func(kept *state.State) (*state.State, error) {
		kept, err := d.made(kept)
		if err != nil {
			return nil, err
		}
		if d.keepAnswer(kept, places, state.Answered{}) {
			d.erase(kept)
			return kept, nil
		}
		if enrolled := kept.Enrolled(d.survey.Pin()); enrolled != nil {
			for _, a := range places {
				enrolled.Attributes[a].Withdraw()
				enrolled.Journal = slices.DeleteFunc(enrolled.Journal, func(left state.Left) bool { return left.Attribute == d.nameOf(a) })
			}
		}
		return kept, nil
	})
	if err == nil {
		d.restart(places)
	}
	return err
}

// restart forgets withdrawals that the store has, or that a consent replaced.
func (d *Device) restart(places []int) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, a := range places {
		delete(d.stopped, a)
	}
}

// muted returns the attributes' reasons of silence without consent.
func (d *Device) muted(kept *state.State) []Silence {
	reasons := make([]Silence, len(d.levels))
	off := d.off()
	for a, one := range d.consents(kept) {
		switch {
		case off:
			reasons[a] = SilenceSwitchedOff
		case one == ConsentUnknown:
			reasons[a] = SilenceConsentUnknown
		case one == ConsentWithdrawn:
			reasons[a] = SilenceConsentWithdrawn
		}
	}
	return reasons
}

func (d *Device) states() (all []Consent, err error) {
	err = d.transaction(func(kept *state.State) (*state.State, error) {
		all = d.consents(kept)
		return kept, d.another(kept)
	})
	return all, err
}

func (d *Device) consents(kept *state.State) []Consent {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	all, now := make([]Consent, len(d.levels)), d.terms()
	for a := range all {
		var answer state.Answered
		answered := false
		if kept != nil {
			answer, answered = kept.Consents[d.survey.Pin()][d.nameOf(a)]
		}
		switch {
		case d.stopped[a] || answered && !answer.Given:
			all[a] = ConsentWithdrawn
		case d.mode != ModeAsked || answered && covers(answer, now):
			all[a] = ConsentGiven
		default:
			all[a] = ConsentUnknown
		}
	}
	return all
}

// covers tells whether the person agreed to the present terms.
func covers(answer, now state.Answered) bool {
	return same(answer.Purpose, now.Purpose) && same(answer.Owner, now.Owner) && longest(now.KeptSeconds) <= longest(answer.KeptSeconds)
}

func same(one, other *string) bool {
	return (one == nil) == (other == nil) && (one == nil || *one == *other)
}

func longest(kept *int64) int64 {
	if kept == nil {
		return math.MaxInt64
	}
	return *kept
}

func (d *Device) off() bool { return d.mode != ModeSimulated && (d.startsOff || SwitchedOff() != "") }

func (d *Device) terms() state.Answered {
	words := d.survey.inner.Words
	return state.Answered{Given: true, Purpose: words.Purpose, Owner: words.Owner, KeptSeconds: d.survey.inner.KeptSeconds()}
}

func (d *Device) places(attributes []string) (places []int, err error) {
	for _, name := range attributes {
		place, err := d.survey.inner.Place(name)
		if err != nil {
			return nil, err
		}
		places = append(places, place)
	}
	for a := range d.levels {
		if len(attributes) == 0 {
			places = append(places, a)
		}
	}
	return places, nil
}

// made returns the state of this device, which a device outside a wallet makes at its first use.
func (d *Device) made(kept *state.State) (*state.State, error) {
	if kept == nil && d.inWallet {
		return nil, fault.New(fault.StoreCleared, "%s: the wallet had been made", d.store)
	}
	if kept == nil {
		kept = state.New(nil)
	}
	return kept, d.another(kept)
}

// keepAnswer keeps the answer for some attributes. It tells whether the person has then withdrawn all attributes.
func (d *Device) keepAnswer(kept *state.State, places []int, answer state.Answered) bool {
	answers := kept.Consents[d.survey.Pin()]
	if answers == nil {
		answers = map[string]state.Answered{}
	}
	for _, a := range places {
		answers[d.nameOf(a)] = answer
	}
	kept.Consents[d.survey.Pin()] = answers
	for a := range d.levels {
		if one, answered := answers[d.nameOf(a)]; !answered || one.Given {
			return false
		}
	}
	return true
}
