package device

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"ldpstream/device/internal/mechanism"
	"ldpstream/device/internal/survey"
	"ldpstream/device/internal/vectors"
)

func parsed(t *testing.T, text []byte) *Survey {
	t.Helper()
	survey, err := ParseSurvey(text)
	if err != nil {
		t.Fatal(err)
	}
	return survey
}

// nameOf returns the name of an error's kind.
func nameOf(err error) string {
	name, _, _ := strings.Cut(err.Error(), ":")
	return name
}

func TestFormats(t *testing.T) {
	formats := vectors.Read[struct{ Canonical, Envelope int }](t, "formats")
	if len(formats) != 1 || formats[0].Canonical != 3 || formats[0].Envelope != 1 {
		t.Errorf("the vectors have the formats %v", formats)
	}
}

type life struct {
	Survey json.RawMessage
	Levels map[string]string
	Random vectors.Hex
	Calls  []struct {
		Attribute string
		Value     any
		Step      int64
		Cohort    string
		Envelope  any
		Key       string
		DueMs     int64 `json:"due_ms"`
		Settle    bool
	}
}

// lived makes all calls. Each one opens the device anew, as after a restart.
func (l life) lived(t *testing.T) {
	survey, random, store := parsed(t, l.Survey), vectors.NewRandom(l.Random), Memory()
	for number, call := range l.Calls {
		options := Options{Levels: l.Levels, Cohort: call.Cohort, Consent: ModeSimulated, Random: random}
		device, err := Open(survey, store, options)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		envelope, err := device.ReportAt(call.Attribute, call.Value, call.Step)
		if err != nil {
			got = map[string]any{"error": nameOf(err)}
		} else if envelope != nil {
			got = hex.EncodeToString(envelope)
		}
		if wrong, _ := json.Marshal(got); !sameJSON(got, call.Envelope) {
			t.Fatalf("%s, call %d: %s, not %v", survey.Name(), number, wrong, call.Envelope)
		}
		waiting, err := device.Waiting()
		if err != nil {
			t.Fatal(err)
		}
		key, due := "", int64(0)
		for _, one := range waiting {
			if one.Attribute == call.Attribute && one.Step == call.Step && envelope != nil {
				key = one.Key
				if !one.Due.IsZero() {
					due = one.Due.UnixMilli()
				}
			}
		}
		if key != call.Key || due != call.DueMs {
			t.Errorf("%s, call %d: key %s at %d, not %s at %d", survey.Name(), number, key, due, call.Key, call.DueMs)
		}
		if call.Settle && key != "" {
			if err := device.Settle(key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if random.Len() != 0 {
		t.Errorf("%s: %d random bytes are left", survey.Name(), random.Len())
	}
}

func sameJSON(a, b any) bool {
	one, _ := json.Marshal(a)
	other, _ := json.Marshal(b)
	return string(one) == string(other)
}

func TestDevices(t *testing.T) {
	for _, name := range []string{"devices", "relay_lives"} {
		for _, one := range vectors.Read[life](t, name) {
			one.lived(t)
		}
	}
}

func TestWallets(t *testing.T) {
	type parameters struct {
		Canonical  string
		Mechanisms [][]*mechanism.Parameters
	}
	known := map[string]*Survey{}
	for _, c := range vectors.Read[parameters](t, "parameters") {
		inner, err := survey.Checked("vector", c.Canonical, c.Mechanisms)
		if err != nil {
			t.Fatal(err)
		}
		known[inner.Pin[:16]] = &Survey{inner}
	}
	type wallet struct {
		Limits struct {
			PerWindow float64 `json:"per_window"`
			WindowS   int64   `json:"window_s"`
			ForEver   float64 `json:"for_ever"`
		}
		Random vectors.Hex
		Calls  []struct {
			NowMs                        int64 `json:"now_ms"`
			Call, Fingerprint, Attribute string
			Value                        any
			Step                         int64
			Error, Envelope              string
			Spent                        float64
			ChargedPerWindow             *float64 `json:"charged_per_window"`
			ChargedForEver               *float64 `json:"charged_for_ever"`
		}
	}
	for _, one := range vectors.Read[wallet](t, "wallets") {
		var now time.Time
		random := vectors.NewRandom(one.Random)
		budget := Budget{one.Limits.PerWindow, time.Duration(one.Limits.WindowS) * time.Second, one.Limits.ForEver}
		wallet, err := openWallet(Memory(), budget, false, func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		for number, call := range one.Calls {
			now = time.UnixMilli(call.NowMs)
			var envelope []byte
			options := Options{ExpectEnrolled: call.Call != "join", Consent: ModeSimulated, Random: random}
			device, err := wallet.Device(known[call.Fingerprint], options)
			if err == nil && call.Call == "leave" {
				err = device.Forget("vector")
			} else if err == nil && call.Call == "report" {
				envelope, err = device.ReportAt(call.Attribute, call.Value, call.Step)
			}
			name := ""
			if errors.Is(err, ErrStoreCleared) {
				name = "ValueError"
			} else if err != nil {
				name = nameOf(err)
			}
			if name != call.Error || hex.EncodeToString(envelope) != call.Envelope {
				t.Fatalf("call %d: %x %v, not %q", number, envelope, err, call.Error)
			}
			spent, err := wallet.Spent()
			if err != nil || !vectors.Close(spent.Spent, &call.Spent) || !vectors.Close(spent.ChargedPerWindow, call.ChargedPerWindow) ||
				!vectors.Close(spent.ChargedForEver, call.ChargedForEver) {
				t.Errorf("call %d: %v %v", number, spent, err)
			}
		}
		if random.Len() != 0 {
			t.Errorf("%d random bytes are left", random.Len())
		}
	}
}

func TestRecipes(t *testing.T) {
	type recipes struct {
		Survey json.RawMessage
		Calls  [][3]any
		Steps  []struct {
			Step    int64
			Indices map[string]int64
		}
	}
	for _, one := range vectors.Read[recipes](t, "recipes") {
		survey := parsed(t, one.Survey)
		var now time.Time
		activity := &Activity{store: Memory(), clock: func() time.Time { return now }}
		for _, call := range one.Calls {
			now = time.UnixMilli(int64(call[0].(float64)))
			seconds, took := call[2].(float64)
			var err error
			switch event := call[1].(string); {
			case event == "":
				err = activity.Seen()
			case took:
				err = activity.Took(event, time.Duration(math.Round(seconds*1e9)))
			default:
				err = activity.Used(event)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range one.Steps {
			values, err := activity.Values(survey, step.Step)
			if err != nil {
				t.Fatal(err)
			}
			indices := map[string]int64{}
			for _, a := range survey.inner.Text.Attribute {
				if value, has := values[a.Name]; has {
					if indices[a.Name], err = a.Index(value); err != nil {
						t.Error(err)
					}
				}
			}
			if !sameJSON(indices, step.Indices) {
				t.Errorf("%s, step %d: %v, not %v", survey.Name(), step.Step, indices, step.Indices)
			}
		}
	}
}
