package survey

import (
	"errors"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"ldpstream/device/internal/fault"
)

// Index returns the index of a person's value; for a set its code. The error does not contain the value.
func (a *Attribute) Index(value any) (int64, error) {
	if index, ok := a.find(reflect.ValueOf(value)); ok {
		return index, nil
	}
	return 0, fault.New(fault.Value, "attribute %q does not have this value", a.Name)
}

// elements returns the elements of a list.
func elements(value reflect.Value) (all []reflect.Value, isList bool) {
	if kind := value.Kind(); kind != reflect.Slice && kind != reflect.Array {
		return nil, false
	}
	for i := range value.Len() {
		all = append(all, value.Index(i))
	}
	return all, true
}

func (a *Attribute) find(value reflect.Value) (int64, bool) {
	switch all, isList := elements(value); {
	case a.IsPair():
		if len(all) != 2 {
			return 0, false
		}
		i, ok := a.Parts[0].find(all[0])
		j, alsoOk := a.Parts[1].find(all[1])
		return i*a.Parts[1].K() + j, ok && alsoOk
	case a.Choices != nil:
		code, ok := a.code(all)
		return code, ok && isList
	}
	return a.single(value)
}

func (a *Attribute) single(value reflect.Value) (int64, bool) {
	if value.Kind() == reflect.Interface {
		value = value.Elem()
	}
	text, isText := "", value.Kind() == reflect.String
	if isText {
		text = value.String()
	}
	if a.Values != nil && isText {
		place := slices.Index(a.Values, text)
		if place < 0 && a.Unlisted != nil {
			place = slices.Index(a.Values, *a.Unlisted)
		}
		return int64(place), place >= 0
	}
	number, ok := numberOf(value)
	if isText {
		number, ok = read(text)
	}
	if !ok || math.IsNaN(number) {
		return 0, false
	}
	switch {
	case a.Values != nil:
		return whole(number, len(a.Values))
	case a.Bins != nil:
		return a.bin(number)
	}
	if integer := number == math.Trunc(number); a.Outside != nil && integer {
		number = max(0, min(number, float64(*a.Size-1)))
	}
	return whole(number, int(*a.Size))
}

func numberOf(value reflect.Value) (float64, bool) {
	switch {
	case !value.IsValid():
		return 0, false
	case value.CanInt():
		return float64(value.Int()), true
	case value.CanUint():
		return float64(value.Uint()), true
	case value.CanFloat():
		return value.Float(), true
	}
	return 0, false
}

func (a *Attribute) bin(number float64) (int64, bool) {
	last := len(a.Bins) - 1
	if a.Outside != nil {
		number = max(a.Bins[0], min(number, a.Bins[last]))
	}
	if number < a.Bins[0] || number > a.Bins[last] {
		return 0, false
	}
	place, exact := slices.BinarySearch(a.Bins, number)
	if !exact || place == last {
		place--
	}
	return int64(place), true
}

// code returns the code of a set: bit v says whether the set has the value v. A listed value must not come twice.
func (a *Attribute) code(all []reflect.Value) (code int64, ok bool) {
	listed := int64(0)
	for _, value := range all {
		i, ok := a.single(value)
		if !ok {
			return 0, false
		}
		if value.Kind() == reflect.Interface {
			value = value.Elem()
		}
		if value.Kind() != reflect.String || slices.Contains(a.Values, value.String()) {
			if listed>>i&1 == 1 {
				return 0, false
			}
			listed |= 1 << i
		}
		code |= 1 << i
	}
	return code, int64(bits.OnesCount64(uint64(code))) <= *a.Choices
}

// whole returns an integer in 0 ... n-1.
func whole(number float64, n int) (int64, bool) {
	ok := number == math.Trunc(number) && number >= 0 && number < float64(n)
	if !ok {
		return 0, false
	}
	return int64(number), true
}

// read reads a text's number: spaces, a sign, decimal digits with at most one point, an exponent, spaces.
func read(text string) (float64, bool) {
	text = strings.Trim(text, " ")
	digits, exponent, hasExponent := text, "", false
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		digits, exponent, hasExponent = text[:i], text[i+1:], true
	}
	plain := allDigits(strings.Replace(unsigned(digits), ".", "", 1))
	if !plain || hasExponent && !allDigits(unsigned(exponent)) {
		return 0, false
	}
	number, err := strconv.ParseFloat(text, 64)
	return number, err == nil || errors.Is(err, strconv.ErrRange)
}

func unsigned(text string) string {
	if text != "" && strings.ContainsRune("+-", rune(text[0])) {
		return text[1:]
	}
	return text
}

func allDigits(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}
