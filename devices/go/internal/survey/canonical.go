// Package survey reads a device survey and makes every check of docs/reference/write_a_device.md: the device must not trust the
// server for its privacy.
package survey

import (
	"cmp"
	"slices"

	"ldpstream/device/internal/fault"
	"ldpstream/device/internal/mechanism"
)

const (
	mostSetValues = 30
	largestPair   = 1024
)

// Canonical is the part of the canonical text that a device needs.
type Canonical struct {
	Format        int64        `json:"format"`
	Start         int64        `json:"start"`
	StepSeconds   int64        `json:"step_seconds"`
	LatenessSteps int64        `json:"lateness_steps"`
	Ends          *int64       `json:"ends"`
	Collection    string       `json:"collection"`
	Relay         *string      `json:"relay"`
	Cohort        *Cohort      `json:"cohort"`
	Attribute     []*Attribute `json:"attribute"`
}

// Cohort is a public fact about a device, such as its version.
type Cohort struct {
	Values []string `json:"values"`
}

// Attribute has exactly one of Values, Size, Bins and Pair.
type Attribute struct {
	Name     string    `json:"name"`
	Values   []string  `json:"values"`
	Size     *int64    `json:"size"`
	Bins     []float64 `json:"bins"`
	Pair     []string  `json:"pair"`
	Choices  *int64    `json:"choices"` // of a question with several answers
	Unlisted *string   `json:"unlisted"`
	Outside  *string   `json:"outside"`
	Recipe   *Recipe   `json:"recipe"`
	Level    []*Level  `json:"level"`

	Parts [2]*Attribute `json:"-"` // of a pair
}

// Level has the losses and the parameters of a level, as the canonical text states them.
type Level struct {
	Name    string                                   `json:"name"`
	Eps     *float64                                 `json:"eps"`
	EpsInf  *float64                                 `json:"eps_inf"`
	Eps1    *float64                                 `json:"eps_1"`
	LogOdds float64                                  `json:"log_odds"`
	Coins   map[string]map[string]map[string]float64 `json:"coins"`
	mechanism.Stated
}

// IsPair tells whether the attribute is a pair of two others.
func (a *Attribute) IsPair() bool { return a.Parts[0] != nil }

// K returns the number of values; for a question with several answers, of values and dummies; 0 if there are none or too many.
func (a *Attribute) K() int64 {
	const most = 1 << 40 // more than any mechanism takes
	switch {
	case a.IsPair():
		first, second := a.Parts[0].K(), a.Parts[1].K()
		if first > most>>20 || second > most>>20 {
			return 0
		}
		return first * second
	case a.Values != nil:
		k := int64(len(a.Values))
		if a.Choices != nil {
			k += *a.Choices
		}
		return k
	case a.Bins != nil:
		return int64(len(a.Bins)) - 1
	case a.Size != nil && *a.Size <= most:
		return *a.Size
	}
	return 0
}

// findPairs finds the two attributes of every pair.
func (c *Canonical) findPairs() error {
	single := map[string]*Attribute{}
	for _, a := range c.Attribute {
		if a.Pair == nil && a.Choices == nil {
			single[a.Name] = a
		}
	}
	for _, a := range c.Attribute {
		if a.Pair == nil {
			continue
		}
		if len(a.Pair) == 2 {
			a.Parts = [2]*Attribute{single[a.Pair[0]], single[a.Pair[1]]}
		}
		if a.Parts[0] == nil || a.Parts[1] == nil || a.Parts[0] == a.Parts[1] {
			return fault.New(fault.UnsafeSurvey, "attribute %q: a pair of two other attributes", a.Name)
		}
	}
	return nil
}

func (c *Canonical) check() error {
	if slices.Contains(c.Attribute, nil) {
		return fault.New(fault.UnknownSurvey, "an attribute is null")
	}
	if err := c.findPairs(); err != nil {
		return err
	}
	has := func(is func(*Attribute) bool) bool { return slices.ContainsFunc(c.Attribute, is) }
	sets := has(func(a *Attribute) bool { return a.Choices != nil })
	format := int64(3)
	switch {
	case has(func(a *Attribute) bool { return a.Recipe != nil }):
		format = 7
	case sets:
		format = 6
	case has((*Attribute).IsPair):
		format = 5
	case c.Relay != nil:
		format = 4
	}
	names := map[string]bool{}
	for _, a := range c.Attribute {
		names[a.Name] = true
	}
	switch {
	case c.Format != format:
		return fault.New(fault.UnknownSurvey, "the canonical text has the format %d, expected %d", c.Format, format)
	case c.Collection != "smp" && c.Collection != "spl" && c.Collection != "rs+fd":
		return fault.New(fault.UnknownSurvey, "the collection %q", c.Collection)
	case sets && c.Collection == "rs+fd":
		return fault.New(fault.UnsafeSurvey, "a question with several answers under rs+fd")
	case c.Relay != nil && (*c.Relay != "required" || c.LatenessSteps < 2):
		return fault.New(fault.UnsafeSurvey, "relay must be \"required\", with lateness_steps of at least 2")
	case len(names) == 0 || len(names) != len(c.Attribute):
		return fault.New(fault.UnsafeSurvey, "no attribute, or two attributes with one name")
	case c.StepSeconds < 1 || c.LatenessSteps < 0 || c.Ends != nil && *c.Ends < 1:
		return fault.New(fault.UnsafeSurvey, "step_seconds, lateness_steps or ends")
	case c.Cohort != nil && len(c.Cohort.Values) == 0:
		return fault.New(fault.UnsafeSurvey, "a cohort without values")
	}
	return nil
}

func (a *Attribute) check(c *Canonical) error {
	kinds := 0
	for _, has := range []bool{a.Values != nil, a.Size != nil, a.Bins != nil, a.Pair != nil} {
		if has {
			kinds++
		}
	}
	values := int64(len(a.Values))
	switch {
	case kinds != 1:
		return a.refused("one of values, size, bins and pair is needed")
	case a.Unlisted != nil && !slices.Contains(a.Values, *a.Unlisted):
		return a.refused("unlisted must be one of the values")
	case a.Outside != nil && (*a.Outside != "nearest" || a.Size == nil && a.Bins == nil):
		return a.refused("outside must be \"nearest\", beside size or bins")
	case a.Bins != nil && !ascending(a.Bins):
		return a.refused("bins must ascend")
	case a.Choices != nil && (values < 2 || values > mostSetValues || *a.Choices < 1 || *a.Choices > values):
		return a.refused("choices must be from 1 to the number of values, of which there are 2 to 30")
	case a.Recipe != nil && !a.Recipe.fits(a, c):
		return a.refused("the recipe")
	case len(a.Level) == 0 || slices.Contains(a.Level, nil):
		return a.refused("no level")
	}
	return nil
}

func (a *Attribute) refused(text string) error {
	return fault.New(fault.UnsafeSurvey, "attribute %q: %s", a.Name, text)
}

func ascending(numbers []float64) bool {
	return slices.IsSortedFunc(numbers, func(x, y float64) int { return cmp.Or(cmp.Compare(x, y), -1) }) // no two are equal
}
