package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"

	"ldpstream/device/internal/survey"
)

// mostDays covers a window of 28 days, a step of 28 days, and some days for a clock that runs ahead.
const mostDays = 64

const dayMs = 86_400_000

// Seen is the event that the application was used.
const Seen = ""

// Log is what a device remembers of the use of an application: day since 1970, event, calls.
type Log struct {
	Days map[int64]map[string]Calls `json:"days"`
}

// Calls of an event have a number and a total duration. In JSON they are a list.
type Calls struct{ N, Ms int64 }

// MarshalJSON writes the list.
func (c Calls) MarshalJSON() ([]byte, error) { return json.Marshal([]int64{c.N, c.Ms}) }

// UnmarshalJSON reads the list.
func (c *Calls) UnmarshalJSON(text []byte) error {
	var list []int64
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if len(list) != 2 {
		return errors.New("an event has a number and a duration")
	}
	c.N, c.Ms = list[0], list[1]
	return nil
}

// Record adds a call on a day, and returns the number of different events of this day beside Seen.
func (l *Log) Record(day int64, event string, durationMs int64) (events int) {
	if l.Days[day] == nil {
		l.Days[day] = map[string]Calls{}
	}
	calls := l.Days[day][event]
	l.Days[day][event] = Calls{calls.N + 1, min(calls.Ms, math.MaxInt64-durationMs) + durationMs}
	l.keepNearest(day)
	for name := range l.Days[day] {
		if name != Seen {
			events++
		}
	}
	return events
}

// keepNearest keeps the first day and the days that are nearest to a day, so that a wrong clock makes it forget nothing true.
func (l *Log) keepNearest(day int64) {
	days := slices.Sorted(maps.Keys(l.Days))
	near := slices.Clone(days)
	slices.SortStableFunc(near, func(x, y int64) int { return cmp.Compare(apart(x, day), apart(y, day)) })
	for _, far := range near[min(mostDays, len(near)):] {
		if far != days[0] {
			delete(l.Days, far)
		}
	}
}

// Values returns the values of the attributes with a recipe; none for a step without use of the application.
func (l *Log) Values(s *survey.Survey, step int64) map[string]float64 {
	values, used := map[string]float64{}, false
	for day := range l.Days {
		used = used || s.StepAt(day*dayMs) == step
	}
	for _, a := range s.Text.Attribute {
		if used && a.Recipe != nil {
			values[a.Name] = a.Recipe.Place(l.measured(a.Recipe, s, step))
		}
	}
	return values
}

// measured returns a recipe's number at a step: it depends only on the days before the step.
func (l *Log) measured(recipe *survey.Recipe, s *survey.Survey, step int64) float64 {
	first, last, isLast := step, int64(0), false
	for day := range l.Days {
		at := s.StepAt(day * dayMs)
		first = min(first, at)
		if at < step && (!isLast || at > last) {
			last, isLast = at, true
		}
	}
	switch {
	case recipe.Measure == "age":
		return float64(step - first)
	case recipe.Measure == "absence" && !isLast:
		return math.Inf(1)
	case recipe.Measure == "absence":
		return float64(step - last)
	case !isLast:
		return 0
	}
	end := s.OpensMs(last+1) / dayMs // last may be before the survey
	days, with, all := 0.0, 0.0, Calls{}
	for day, events := range l.Days {
		if s.StepAt(day*dayMs) >= step || day < end-*recipe.Days {
			continue
		}
		days++
		if recipe.Of == nil {
			continue
		}
		if calls, found := events[*recipe.Of]; found {
			with++
			all = Calls{all.N + calls.N, all.Ms + calls.Ms}
		}
	}
	switch {
	case recipe.Measure == "active_days" && recipe.Of == nil:
		return days
	case recipe.Measure == "active_days":
		return with
	case recipe.Measure == "days_without":
		return days - with
	case recipe.Measure == "uses_per_day":
		return float64(all.N) / days
	}
	return float64(all.Ms) / 1000 / days
}
