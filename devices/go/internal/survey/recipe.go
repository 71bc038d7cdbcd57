package survey

import (
	"bytes"
	"encoding/json"
	"slices"
)

const (
	dayMs    = 86_400_000
	mostDays = 28
)

// Recipe says how to compute an attribute's number. The window has the Days days that end with the last step of use.
type Recipe struct {
	Measure string    `json:"measure"`
	Of      *string   `json:"of"`
	Days    *int64    `json:"days"`
	Edges   []float64 `json:"edges"`
}

// UnmarshalJSON refuses unknown keys.
func (r *Recipe) UnmarshalJSON(text []byte) error {
	type plain Recipe
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode((*plain)(r))
}

// Place returns what a device reports for a number: with edges the index of a value, otherwise the number itself.
func (r *Recipe) Place(number float64) float64 {
	if r.Edges == nil {
		return number
	}
	place, exact := slices.BinarySearch(r.Edges, number)
	if exact {
		place++
	}
	return float64(place)
}

func (r *Recipe) fits(a *Attribute, c *Canonical) bool {
	measures := []string{"active_days", "days_without", "uses_per_day", "seconds_per_day", "age", "absence"}
	windowed := r.Measure != "age" && r.Measure != "absence"
	stepDays := c.StepSeconds / (dayMs / 1000)
	days := c.StepSeconds%(dayMs/1000) == 0 && stepDays >= 1 && stepDays <= mostDays && c.Start%dayMs == 0
	window := (r.Days != nil) == windowed && (r.Days == nil || *r.Days >= stepDays && *r.Days <= mostDays)
	of := r.Of == nil && (!windowed || r.Measure == "active_days") || r.Of != nil && windowed
	edges := r.Edges == nil && a.Values == nil && a.Pair == nil && a.Outside != nil
	if r.Edges != nil && a.Values != nil {
		edges = len(r.Edges)+1 == len(a.Values) && ascending(r.Edges)
	}
	return slices.Contains(measures, r.Measure) && days && window && of && edges && a.Choices == nil && a.Unlisted == nil
}
