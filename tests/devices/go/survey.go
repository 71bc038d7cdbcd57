// Package ldpdevice is a device for ldpstream, written from docs/reference/write_a_device.md and docs/reference/wire_format.md alone.
package ldpdevice

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"reflect"
	"slices"
)

// ErrUnknownSurvey means that the device does not know how to answer the survey, or that a check of the survey failed.
var ErrUnknownSurvey = errors.New("UnknownSurvey")

// maxLoss in nats: the check of the coins is not accurate for larger losses.
const maxLoss = 700

// Level has the mechanism, the losses and the parameters of a level, as the canonical text states them.
type Level struct {
	Name            string   `json:"name"`
	Mechanism       string   `json:"mechanism"`
	Eps             *float64 `json:"eps"`
	EpsInf          *float64 `json:"eps_inf"`
	Eps1            *float64 `json:"eps_1"`
	EverySteps      *int64   `json:"every_steps"`
	LifetimeReports *int64   `json:"lifetime_reports"`
	G               int64    `json:"g"`
	Omega           int64    `json:"omega"`
	MemoSize        int64    `json:"memo_size"`
	LogOdds         float64  `json:"log_odds"`
	Width           int64    `json:"width"`
	Choices         int64    `json:"choices"`

	RowBytes  int64                                    `json:"row_bytes"`
	Functions int64                                    `json:"functions"`
	Digits    int64                                    `json:"digits"`
	Stride    int64                                    `json:"stride"`
	Field     Field                                    `json:"field"`
	Coins     map[string]map[string]map[string]float64 `json:"coins"`
}

// Attribute has exactly one of Values, Size, Bins and Pair.
type Attribute struct {
	Name     string    `json:"name"`
	Values   []string  `json:"values"`
	Size     int64     `json:"size"`
	Bins     []float64 `json:"bins"`
	Pair     []string  `json:"pair"`
	Choices  int64     `json:"choices"` // of a question with several answers
	Unlisted *string   `json:"unlisted"`
	Outside  *string   `json:"outside"`
	Level    []Level   `json:"level"`

	first, second *Attribute // of a pair
}

// Cohort is a public fact about a device, such as its version.
type Cohort struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// Canonical is the part of the canonical text that a device needs.
type Canonical struct {
	Format        int64       `json:"format"`
	Start         int64       `json:"start"`
	StepSeconds   int64       `json:"step_seconds"`
	LatenessSteps int64       `json:"lateness_steps"`
	Ends          *int64      `json:"ends"`
	Collection    string      `json:"collection"`
	Cohort        *Cohort     `json:"cohort"`
	Attribute     []Attribute `json:"attribute"`
}

// Parameters of one attribute and level.
type Parameters struct {
	Mechanism       string                     `json:"mechanism"`
	K               int64                      `json:"k"`
	RowBytes        int64                      `json:"row_bytes"`
	EverySteps      int64                      `json:"every_steps"`
	LifetimeReports *int64                     `json:"lifetime_reports"`
	G               int64                      `json:"g"`
	Functions       int64                      `json:"functions"`
	Digits          int64                      `json:"digits"`
	Stride          int64                      `json:"stride"`
	Field           Field                      `json:"field"`
	Omega           int64                      `json:"omega"`
	MemoSize        int64                      `json:"memo_size"`
	Odds            *Odds                      `json:"odds"`
	Width           int64                      `json:"width"`
	Choices         int64                      `json:"choices"`
	Coins           map[string]map[string]Coin `json:"coins"`

	cumulated []*big.Int // see weights
}

// Survey is a device survey that passed every check.
type Survey struct {
	Pin         string // SHA-256 of the canonical text, as 64 hexadecimal digits
	Fingerprint [8]byte
	Canonical   Canonical
	Mechanisms  [][]Parameters
}

// Index returns the index that a device reports for a value of an attribute; the value is a string, an int64 or a float64, or a
// [2]any of these for a pair, or a []any of all values of a person for several answers. An error never contains the value.
func (a *Attribute) Index(value any) (int64, error) {
	if a.Choices > 0 {
		return a.code(value)
	}
	switch v := value.(type) {
	case [2]any:
		if a.first != nil {
			i, wrong := a.first.Index(v[0])
			j, alsoWrong := a.second.Index(v[1])
			if err := errors.Join(wrong, alsoWrong); err == nil {
				return i*a.second.K() + j, nil
			}
		}
	case string:
		for i, text := range a.Values {
			if text == v {
				return int64(i), nil
			}
		}
		if a.Unlisted != nil && v != *a.Unlisted {
			return a.Index(*a.Unlisted)
		}
	case int64:
		if a.Outside != nil && a.Size > 0 {
			v = max(0, min(v, a.Size-1))
		}
		if v >= 0 && v < a.Size {
			return v, nil
		}
	case float64:
		last := len(a.Bins) - 1
		if a.Outside != nil && last > 0 {
			v = max(a.Bins[0], min(v, a.Bins[last]))
		}
		for i := 0; i < last; i++ {
			if a.Bins[i] <= v && (v < a.Bins[i+1] || (i+1 == last && v == a.Bins[last])) {
				return int64(i), nil
			}
		}
	}
	return 0, fmt.Errorf("%w: not a value of the attribute %q", ErrValue, a.Name)
}

// code returns the code of a set of values: bit v says whether the set has the value v.
func (a *Attribute) code(value any) (int64, error) {
	given, ok := value.([]any)
	single, listed := *a, map[int64]bool{}
	single.Choices = 0
	code := int64(0)
	for _, one := range given {
		i, err := single.Index(one)
		text, isText := one.(string)
		if known := !isText || slices.Contains(a.Values, text); known && listed[i] {
			ok = false
		} else if known {
			listed[i] = true
		}
		if err != nil {
			return 0, err
		}
		code |= 1 << i
	}
	if !ok || int64(bits.OnesCount64(uint64(code))) > a.Choices {
		return 0, fmt.Errorf("%w: not a set of values of the attribute %q", ErrValue, a.Name)
	}
	return code, nil
}

// K returns the number of the attribute's values; for several answers, of the values and the dummies.
func (a *Attribute) K() int64 {
	if a.first != nil {
		return a.first.K() * a.second.K()
	}
	if a.Values != nil {
		return int64(len(a.Values)) + a.Choices
	}
	if a.Bins != nil {
		return int64(len(a.Bins) - 1)
	}
	return a.Size
}

// ParseSurvey reads a device survey and makes every check of the document.
func ParseSurvey(text []byte) (*Survey, error) {
	var raw struct {
		Canonical   string         `json:"canonical"`
		Fingerprint string         `json:"fingerprint"`
		Mechanisms  [][]Parameters `json:"mechanisms"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnknownSurvey, err)
	}
	hash := sha256.Sum256([]byte(raw.Canonical))
	if hex.EncodeToString(hash[:8]) != raw.Fingerprint {
		return nil, fmt.Errorf("%w: the fingerprint is not the hash of the canonical text", ErrUnknownSurvey)
	}
	return newSurvey(raw.Canonical, raw.Mechanisms)
}

func newSurvey(canonical string, mechanisms [][]Parameters) (*Survey, error) {
	hash := sha256.Sum256([]byte(canonical))
	survey := &Survey{Pin: hex.EncodeToString(hash[:]), Fingerprint: [8]byte(hash[:8]), Mechanisms: mechanisms}
	if err := json.Unmarshal([]byte(canonical), &survey.Canonical); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnknownSurvey, err)
	}
	c := &survey.Canonical
	paired, err := c.findPairs()
	if err != nil {
		return nil, err
	}
	format := map[bool]int64{false: 3, true: 5}[paired]
	if slices.ContainsFunc(c.Attribute, func(a Attribute) bool { return a.Choices != 0 }) {
		format = 6
	}
	if c.Format != format || format == 6 && c.Collection == "rs+fd" {
		return nil, fmt.Errorf("%w: canonical text of format %d", ErrUnknownSurvey, c.Format)
	}
	if c.Collection != "smp" && c.Collection != "spl" && c.Collection != "rs+fd" {
		return nil, fmt.Errorf("%w: collection %q", ErrUnknownSurvey, c.Collection)
	}
	if len(c.Attribute) == 0 || len(c.Attribute) != len(mechanisms) || c.StepSeconds < 1 || c.LatenessSteps < 0 {
		return nil, fmt.Errorf("%w: attributes or steps", ErrUnknownSurvey)
	}
	share := 1.0
	if c.Collection == "spl" {
		share = float64(len(c.Attribute))
	}
	for i := range c.Attribute {
		a := &c.Attribute[i]
		if len(a.Level) == 0 || len(a.Level) != len(mechanisms[i]) {
			return nil, fmt.Errorf("%w: attribute %q: number of levels", ErrUnknownSurvey, a.Name)
		}
		if a.Unlisted != nil && !slices.Contains(a.Values, *a.Unlisted) || a.Outside != nil && (*a.Outside != "nearest" || a.Values != nil) {
			return nil, fmt.Errorf("%w: attribute %q: values outside the domain", ErrUnknownSurvey, a.Name)
		}
		for j := range a.Level {
			if err := check(a, &a.Level[j], &mechanisms[i][j], share); err != nil {
				return nil, fmt.Errorf("%w: attribute %q, level %q: %v", ErrUnknownSurvey, a.Name, a.Level[j].Name, err)
			}
		}
	}
	return survey, nil
}

// findPairs finds the two attributes of every pair, and returns whether there is a pair.
func (c *Canonical) findPairs() (bool, error) {
	single, paired := map[string]*Attribute{}, false
	for i := range c.Attribute {
		if c.Attribute[i].Pair == nil && c.Attribute[i].Choices == 0 {
			single[c.Attribute[i].Name] = &c.Attribute[i]
		}
	}
	for i := range c.Attribute {
		a := &c.Attribute[i]
		if a.Pair == nil {
			continue
		}
		if len(a.Pair) == 2 {
			a.first, a.second = single[a.Pair[0]], single[a.Pair[1]]
		}
		if a.first == nil || a.second == nil || a.first == a.second {
			return false, fmt.Errorf("%w: attribute %q: pair", ErrUnknownSurvey, a.Name)
		}
		paired = true
	}
	return paired, nil
}

// Parts returns the two attributes of a pair, or nil.
func (a *Attribute) Parts() (first, second *Attribute) {
	return a.first, a.second
}

func check(a *Attribute, l *Level, p *Parameters, share float64) error {
	kind, known := mechanisms[p.Mechanism]
	_, isSets := kind.family.(sets)
	every := int64(1)
	if l.EverySteps != nil {
		every = *l.EverySteps
	}
	switch {
	case !known || p.Mechanism != l.Mechanism:
		return errors.New("mechanism")
	case p.K != a.K():
		return errors.New("number of values")
	case p.EverySteps != every || every < 1:
		return errors.New("every_steps")
	case (p.LifetimeReports == nil) != (l.LifetimeReports == nil):
		return errors.New("lifetime_reports")
	case p.LifetimeReports != nil && *p.LifetimeReports != *l.LifetimeReports:
		return errors.New("lifetime_reports")
	case isSets != (a.Choices > 0) || p.Choices != a.Choices || l.Choices != a.Choices:
		return errors.New("choices")
	case a.Choices < 0 || a.Choices > int64(len(a.Values)) || a.Choices > 0 && len(a.Values) > 30:
		return errors.New("choices")
	case p.G != l.G || p.Omega != l.Omega || p.MemoSize != l.MemoSize || p.Width != l.Width || !kind.fits(p):
		return errors.New("parameters of the mechanism")
	case p.Odds != nil && !(math.Abs(p.Odds.log()-l.LogOdds) <= 1e-5*l.LogOdds):
		return errors.New("other odds than the level's")
	case p.Functions != l.Functions || p.Digits != l.Digits || p.Stride != l.Stride || !reflect.DeepEqual(p.Field, l.Field):
		return errors.New("other hash functions than the level's")
	case p.RowBytes != kind.rowBytes(p) || p.RowBytes != l.RowBytes:
		return errors.New("row_bytes")
	}
	if !kind.hasCoins(p.Coins) {
		return errors.New("coins")
	}
	if !sameCoins(p.Coins, l.Coins) {
		return errors.New("other coins than the level's")
	}
	first, report := kind.losses(p)
	if kind.memoized {
		return errors.Join(atMost(first, l.EpsInf, share), atMost(report, l.Eps1, share))
	}
	return atMost(report, l.Eps, share)
}

// sameCoins compares the coins with the six digits that the canonical text has of each smaller probability.
func sameCoins(given map[string]map[string]Coin, stated map[string]map[string]map[string]float64) bool {
	for part, coins := range given {
		for name, coin := range coins {
			smaller := 0.0
			for i := len(coin.digits) - 1; i >= 0; i-- {
				smaller = (smaller + float64(coin.digits[i])) / 256
			}
			expected, yes := stated[part][name]["yes"]
			if !yes {
				expected = stated[part][name]["no"]
			}
			if yes == coin.inverted && expected != 0.5 || !(math.Abs(smaller-expected) <= 1e-5*expected) {
				return false
			}
		}
	}
	return true
}

func atMost(loss float64, claim *float64, share float64) error {
	if claim == nil || *claim > maxLoss || !(math.Abs(loss) <= *claim/share+1e-9) {
		return errors.New("the coins lose more than the level promises")
	}
	return nil
}

func commonFactor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func isPower(base, exponent, power int64) bool {
	product := int64(1)
	for ; exponent > 0 && product <= power; exponent-- {
		product *= base
	}
	return exponent == 0 && product == power
}
