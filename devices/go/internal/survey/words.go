package survey

import (
	"fmt"
	"math"
	"strings"
	"unicode"

	"ldpstream/device/internal/wire"
)

// The words are those of every device. A chance is that of a guesser who at first considers all answers equally likely. It follows
// from the losses, and holds even if the answers to the other questions are hints.
const (
	drawn        = "Your device sends a random answer. Your true answer only changes the chances of the draw."
	notProtected = "Not protected: that you take part, when you send or stay silent, and the question, level and group of a report. " +
		"If an answer changes, or your storage is deleted, reports can reveal more."
	stop = "You can stop at any time. Then this device sends nothing more, and erases what it keeps. " +
		"Reports that it sent stay in the histograms."
	same = "the same for all participants"
)

// Question returns the text by which a program asks for consent, one sentence or two a line.
func (s *Survey) Question(levels []int) string {
	purpose, askedBy, names := text(s.Words.Purpose), []string{}, []string{}
	for _, named := range []string{text(s.Words.Owner), s.Words.Contact} {
		if named != "" {
			askedBy = append(askedBy, named)
		}
	}
	for _, a := range s.Text.Attribute {
		names = append(names, a.Name)
	}
	lines := []string{or(s.Words.Title, s.Name)}
	if s.Words.Description != "" {
		lines = append(lines, s.Words.Description)
	}
	lines = append(lines, "Purpose: "+or(purpose, "not stated."), "Asked by: "+or(strings.Join(askedBy, ", "), "not stated."),
		"Questions: "+strings.Join(names, ", ")+".", drawn)
	every, one := s.losses(levels), []made{}
	for a, level := range levels {
		one = append(one, s.ofReport(a, level))
	}
	for _, a := range s.Text.Attribute {
		blind, step, all := s.people(a, made{0, 1}), s.people(a, one...), s.people(a, every...)
		lines = append(lines, fmt.Sprintf("A %s is right for at most %s without a report, %s with the reports of one step, "+
			"and %s with all reports while your answers stay the same.", a.guess(), blind, step, all))
	}
	lines = append(lines, notProtected)
	if kept := s.KeptSeconds(); kept != nil {
		lines = append(lines, fmt.Sprintf("Kept: the service shows the histograms for %s. Copies can stay longer.", duration(*kept)))
	}
	for i, line := range lines {
		lines[i] = Shown(line)
	}
	return strings.Join(append(lines, stop), "\n")
}

// Shown returns a text without control characters, and without those that reverse the text after them: a gateway could write over
// other lines.
func Shown(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return ' '
		}
		return r
	}, text)
}

// Part is a part of an envelope, and what it can reveal.
type Part struct {
	Data    []byte
	Reveals string
}

// Explained returns the parts of an envelope of the survey. Together, they are the envelope.
func (s *Survey) Explained(envelope []byte) []Part {
	parts := wire.Split(envelope)
	a, level := int(wire.Number(parts[2])), int(wire.Number(parts[3]))
	asked := s.Text.Attribute[a]
	said := []string{
		"the version of the form: " + same,
		fmt.Sprintf("that you take part in %s: %s", s.Name, same),
		"the question: " + asked.Name,
		"the level: " + same,
		fmt.Sprintf("the time: step %d, of %s", wire.Number(parts[4]), duration(s.Text.StepSeconds)),
		"the number of reports: " + same,
	}
	if len(asked.Level) > 1 {
		said[3] = "the level that you chose: " + asked.Level[level].Name
	}
	if s.Text.Cohort != nil {
		said = append(said, "your device's group: "+s.Text.Cohort.Values[wire.Number(parts[6])])
	}
	said = append(said, fmt.Sprintf("a random answer: a %s is right for at most %s, without it %s",
		asked.guess(), s.people(asked, s.ofReport(a, level)), s.people(asked, made{0, 1})))
	explained := []Part{{envelope[:1], "the form: " + same}}
	for i, part := range parts {
		explained = append(explained, Part{part, Shown(said[i])})
	}
	return explained
}

func (a *Attribute) guess() string {
	if a.Choices != nil {
		return fmt.Sprintf("guess whether %s has a value (yes and no are equally likely at first)", a.Name)
	}
	return fmt.Sprintf("guess of %s (all answers are equally likely at first)", a.Name)
}

// people returns a bound of the chance of a right guess, rounded up to a number of people.
func (s *Survey) people(a *Attribute, all ...made) string {
	k := float64(a.K())
	if a.Choices != nil {
		k = 2
	}
	people := math.Ceil(100*s.guessBound(k, all) - 1e-9)
	if people < 100 {
		return fmt.Sprintf("%.0f of 100", people)
	}
	return "no useful limit"
}

// duration rounds a time up to its largest unit that occurs twice.
func duration(seconds int64) string {
	unit, name := int64(1), "second"
	switch {
	case seconds >= 2*86_400:
		unit, name = 86_400, "day"
	case seconds >= 2*3600:
		unit, name = 3600, "hour"
	case seconds >= 2*60:
		unit, name = 60, "minute"
	}
	n := seconds / unit
	if seconds%unit > 0 {
		n++
	}
	if n != 1 {
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}

func text(given *string) string {
	if given == nil {
		return ""
	}
	return *given
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
