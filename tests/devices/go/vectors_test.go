package ldpdevice

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("VECTORS"), name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func unhex(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}

func TestFormats(t *testing.T) {
	var formats []struct{ Canonical, Envelope int }
	read(t, "formats.json", &formats)
	if len(formats) != 1 || formats[0].Canonical != 3 || formats[0].Envelope != 1 {
		t.Errorf("the vectors have the formats %v", formats)
	}
}

func TestSurveys(t *testing.T) {
	var cases []struct{ Canonical, Fingerprint, Pin string }
	read(t, "surveys.json", &cases)
	for _, c := range cases {
		if hash := sha256.Sum256([]byte(c.Canonical)); hex.EncodeToString(hash[:8]) != c.Fingerprint || hex.EncodeToString(hash[:]) != c.Pin {
			t.Errorf("%s has another fingerprint or pin", c.Canonical)
		}
	}
	t.Logf("%d surveys", len(cases))
}

func TestParameters(t *testing.T) {
	var cases []struct {
		Canonical  string
		Mechanisms [][]Parameters
	}
	read(t, "parameters.json", &cases)
	for _, c := range cases {
		if _, err := newSurvey(c.Canonical, c.Mechanisms); err != nil {
			t.Errorf("%s: %v", c.Canonical, err)
		}
		// Coins with an almost certain answer lose more than any level promises.
		for _, coins := range c.Mechanisms[0][0].Coins {
			for name := range coins {
				coins[name] = Coin{[]byte{0, 0, 0, 0, 1}, name != "zero"}
			}
		}
		if _, err := newSurvey(c.Canonical, c.Mechanisms); !errors.Is(err, ErrUnknownSurvey) {
			t.Errorf("%s: accepts coins that lose too much: %v", c.Canonical, err)
		}
	}
	t.Logf("%d parameters", len(cases))
}

func TestForged(t *testing.T) {
	var cases []struct {
		Fault  string
		Survey json.RawMessage
	}
	read(t, "forged.json", &cases)
	for _, c := range cases {
		if _, err := ParseSurvey(c.Survey); !errors.Is(err, ErrUnknownSurvey) {
			t.Errorf("%s: accepts the survey: %v", c.Fault, err)
		}
	}
	t.Logf("%d forged", len(cases))
}

func TestHashes(t *testing.T) {
	var cases []struct {
		Parameters
		Cases [][3]int64
	}
	read(t, "hashes.json", &cases)
	for _, c := range cases {
		if !c.Field.has(c.G) || !isPower(c.G, c.Digits, c.Functions) {
			t.Errorf("g = %d: refuses the field", c.G)
		}
		if c.Field.has(c.G * c.G) {
			t.Errorf("g = %d: takes a field of another size", c.G)
		}
		for _, one := range c.Cases {
			if got := c.hash(one[0], one[1]); got != one[2] {
				t.Errorf("g = %d: H_%d(%d) is %d, not %d", c.G, one[0], one[1], got, one[2])
			}
		}
	}
	t.Logf("%d hashes", len(cases))
}

func TestDraws(t *testing.T) {
	var cases []struct {
		Parameters Parameters
		Cases      []struct {
			Value          int64
			Function       *int64
			Random, Report string
			Memo           *string
		}
	}
	read(t, "draws.json", &cases)
	for _, c := range cases {
		p := &c.Parameters
		for _, one := range c.Cases {
			random := bytes.NewReader(unhex(one.Random))
			d := Draws{random}
			var report []byte
			if k := mechanisms[p.Mechanism]; k.memoized {
				function := int64(0)
				if one.Function != nil {
					function = *one.Function
				}
				memo := k.first(p, d, p.Coins["memo"], k.key(p, one.Value, function), function)
				if hex.EncodeToString(memo) != *one.Memo {
					t.Errorf("%s, value %d, random %s: memo %x, not %s", p.Mechanism, one.Value, one.Random, memo, *one.Memo)
				}
				report = k.second(p, d, memo)
			} else {
				report = p.once(d, one.Value)
			}
			if hex.EncodeToString(report) != one.Report || random.Len() != 0 {
				t.Errorf("%s, value %d, random %s: report %x, not %s", p.Mechanism, one.Value, one.Random, report, one.Report)
			}
		}
	}
	t.Logf("%d draws", len(cases))
}

func TestEnvelopes(t *testing.T) {
	var cases []struct {
		Fingerprint, Rows, Envelope string
		Attribute, Level, N         int
		Step                        int64
		Cohort                      *int
	}
	read(t, "envelopes.json", &cases)
	for _, c := range cases {
		got := Seal([8]byte(unhex(c.Fingerprint)), c.Attribute, c.Level, c.Step, c.N, c.Cohort, unhex(c.Rows))
		if hex.EncodeToString(got) != c.Envelope {
			t.Errorf("step %d: envelope %x, not %s", c.Step, got, c.Envelope)
		}
	}
	t.Logf("%d envelopes", len(cases))
}

// given turns a vector's value into the text or number that a person's program would give.
func given(a *Attribute, raw json.RawMessage) any {
	var both []json.RawMessage
	if json.Unmarshal(raw, &both) == nil {
		if first, second := a.Parts(); first != nil && len(both) == 2 {
			return [2]any{given(first, both[0]), given(second, both[1])}
		}
		if a.Choices > 0 {
			single, all := *a, []any{}
			single.Choices = 0
			for _, one := range both {
				all = append(all, given(&single, one))
			}
			return all
		}
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if a.Values != nil {
			return text
		}
	} else {
		text = string(raw)
	}
	if a.Bins != nil {
		if number, err := strconv.ParseFloat(text, 64); err == nil {
			return number
		}
		return nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	if a.Values == nil {
		return number
	}
	if number < 0 || number >= a.K() {
		return nil
	}
	return a.Values[number]
}

func TestDevices(t *testing.T) {
	var cases []struct {
		Survey json.RawMessage
		Levels map[string]string
		Random string
		Calls  []struct {
			Attribute string
			Value     json.RawMessage
			Index     *int64
			Step      int64
			Cohort    *string
			Envelope  json.RawMessage
			Key       *string
			Settle    bool
		}
	}
	read(t, "devices.json", &cases)
	for number, c := range cases {
		survey, err := ParseSurvey(c.Survey)
		if err != nil {
			t.Fatal(err)
		}
		random, store := bytes.NewReader(unhex(c.Random)), &Memory{}
		if _, err := Enrol(survey, store, random, c.Levels); err != nil {
			t.Fatal(err)
		}
		for i, call := range c.Calls {
			device, err := Open(survey, store, random) // every call after a restart
			if err != nil {
				t.Fatal(err)
			}
			if call.Cohort != nil {
				if err := device.SetCohort(*call.Cohort); err != nil {
					t.Fatal(err)
				}
			}
			place := 0
			for survey.Canonical.Attribute[place].Name != call.Attribute {
				place++
			}
			value := given(&survey.Canonical.Attribute[place], call.Value)
			index, wrong := survey.Canonical.Attribute[place].Index(value)
			if (call.Index == nil) != (wrong != nil) || (call.Index != nil && *call.Index != index) {
				t.Errorf("life %d, call %d: another index", number, i)
			}
			sealed, err := device.Report(place, value, call.Step)
			got, want := "null", string(call.Envelope)
			if err != nil {
				got = `{"error":"` + errors.Unwrap(err).Error() + `"}`
			} else if sealed != nil {
				got = `"` + hex.EncodeToString(sealed.Envelope) + `"`
				if call.Key != nil && *call.Key != sealed.Key {
					t.Errorf("life %d, call %d: another key", number, i)
				}
				if call.Settle {
					if err := device.Settle(place, call.Step); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got != want {
				t.Errorf("life %d, call %d: %s, not %s", number, i, got, want)
			}
		}
		if random.Len() != 0 {
			t.Errorf("life %d: %d random bytes are left", number, random.Len())
		}
	}
	t.Logf("%d devices", len(cases))
}

func TestFile(t *testing.T) {
	folder := t.TempDir()
	store, err := OpenFile(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(folder); !errors.Is(err, ErrStoreHeld) {
		t.Errorf("two hold one store: %v", err)
	}
	if text, err := store.Load(); err != nil || text != nil {
		t.Errorf("a new store has %q: %v", text, err)
	}
	if err := store.Save([]byte("one")); err != nil {
		t.Fatal(err)
	}
	store.Close()
	if store, err = OpenFile(folder); err != nil {
		t.Fatal(err)
	}
	if text, err := store.Load(); err != nil || string(text) != "one" {
		t.Errorf("the store has %q: %v", text, err)
	}
	store.Close()
}
