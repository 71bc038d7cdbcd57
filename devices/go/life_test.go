package device

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ldpstream/device/internal/vectors"
)

// TestMain gives all tests a machine without switches.
func TestMain(m *testing.M) {
	os.Setenv("DO_NOT_TRACK", "")
	os.Setenv("CI", "")
	os.Exit(m.Run())
}

// rest returns a survey of the vectors with several attributes under spl, the first of them memoized, with other words.
func rest(t *testing.T, purpose string, retentionSteps int) *Survey {
	t.Helper()
	for _, one := range vectors.Read[life](t, "devices") {
		var document map[string]any
		if err := json.Unmarshal(one.Survey, &document); err != nil {
			t.Fatal(err)
		}
		if document["name"] == "rest" {
			document["words"] = map[string]any{"purpose": purpose, "owner": "A team", "retention_steps": retentionSteps}
			text, _ := json.Marshal(document)
			return parsed(t, text)
		}
	}
	t.Fatal("no survey rest")
	return nil
}

// must returns a result without an error.
func must[T any](result T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

func simulated(t *testing.T, store Store) *Device {
	t.Helper()
	return must(Open(rest(t, "To know more", 30), store, Options{Consent: ModeSimulated}))(t)
}

func names(d *Device) (all []string) {
	for _, a := range d.Survey().Attributes() {
		all = append(all, a.Name)
	}
	return all
}

func TestRestartKeepsTheReportItsKeyAndTheMemo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	first := simulated(t, File(path))
	name := names(first)[0]
	envelope := must(first.ReportAt(name, 0, 3))(t)
	waiting := must(simulated(t, File(path)).Waiting())(t)
	whole, _ := os.ReadFile(path)
	for _, part := range [][]byte{{}, whole[:len(whole)/2], whole} { // what a crash leaves, which others may read
		if err := os.WriteFile(path+".new", part, 0o644); err != nil {
			t.Fatal(err)
		}
		again := simulated(t, File(path))
		if kept := must(again.ReportAt(name, 1, 3))(t); !bytes.Equal(kept, envelope) {
			t.Errorf("the report is %x, not %x", kept, envelope)
		}
	}
	again := simulated(t, File(path))
	must(again.ReportAt(name, 0, 4))(t)
	if spent := must(again.Spent(name))(t); spent.Reports != 2 || spent.EpsT == nil {
		t.Errorf("spent %v", spent)
	}
	if err := again.Settle(waiting[0].Key); err != nil || waiting[0].Step != 3 {
		t.Error(err)
	}
	if left := must(again.Waiting())(t); len(left) != 1 || left[0].Step != 4 {
		t.Errorf("waiting %v", left)
	}
	for _, file := range []string{path, path + ".lock"} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestGoroutinesThatShareAFileAreOneDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	one := simulated(t, File(path))
	made := make([]string, 8)
	var wait sync.WaitGroup
	for i := range made {
		wait.Go(func() {
			device := one
			if i%2 == 1 {
				device, _ = Open(one.Survey(), File(path), Options{Consent: ModeSimulated})
			}
			envelope, err := device.ReportAt(names(one)[0], i%3, 3)
			made[i] = hex.EncodeToString(envelope)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if slices.Sort(made); made[0] != made[7] || made[0] == "" {
		t.Errorf("reports %v", made)
	}
}

func TestAHeldFileIsAnErrorAndLosesNothing(t *testing.T) {
	store := File(filepath.Join(t.TempDir(), "a"))
	device := simulated(t, store)
	hurried := &FileStore{0, store.path}
	err := store.Update(func(text []byte) ([]byte, error) {
		_, err := Open(device.Survey(), hurried, Options{Consent: ModeSimulated})
		return text, err
	})
	if !errors.Is(err, ErrStoreHeld) {
		t.Error(err)
	}
	if _, err := Open(device.Survey(), hurried, Options{ExpectEnrolled: true, Consent: ModeSimulated}); err != nil {
		t.Error(err)
	}
}

func TestDamagedLaterAndOtherFilesAreErrorsAndStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	device := simulated(t, File(path))
	text, _ := os.ReadFile(path)
	broken := []string{"[]", "{", string(text[:len(text)/2])}
	for _, change := range [][2]string{
		{`"format":1`, `"format":2`}, {`"level":0`, `"level":9`}, {`"level":0`, `"level":-1`}, {`"memos":{`, `"memos":{"7":{"row":"","reports":1}`},
		{`"memos":{}`, `"memos":null`}, {`"consents":{}`, `"consents":null`}, {`"surveys":[{`, `"surveys":[null,{`},
		{`"phase":0,`, ``}, {`"phase":0,`, `"phase":0,"more":1,`}, {"a device or wallet", "an activity log"},
	} {
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			t.Errorf("no %s in %s", change[0], text)
		}
		broken = append(broken, changed)
	}
	var document map[string]any
	json.Unmarshal(text, &document)
	change(document, []string{"content", "surveys", "attributes"}, []any{})
	short, _ := json.Marshal(document) // no attributes
	for _, wrong := range append(broken, string(short)) {
		os.WriteFile(path, []byte(wrong), 0o600)
		_, err := Open(device.Survey(), File(path), Options{Consent: ModeSimulated})
		if kept, _ := os.ReadFile(path); !errors.Is(err, ErrStore) || string(kept) != wrong {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if _, err := OpenActivity(File(path)); !errors.Is(err, ErrStore) {
		t.Error(err)
	}
	if _, err := Open(device.Survey(), File(filepath.Join(path, "below a file")), Options{}); !errors.Is(err, ErrStore) {
		t.Error(err)
	}
}

func TestAClearedStoreIsAnErrorForADeviceThatHadEnrolled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	device := simulated(t, File(path))
	name := names(device)[0]
	os.Remove(path)
	if _, err := device.ReportAt(name, 0, 1); !errors.Is(err, ErrStoreCleared) {
		t.Error(err)
	}
	_, err := Open(device.Survey(), File(path), Options{ExpectEnrolled: true, Consent: ModeSimulated})
	if _, missing := os.Stat(path); !errors.Is(err, ErrStoreCleared) || missing == nil {
		t.Error(err)
	}
}

func TestForgettingNeedsTheNameAndErasesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	device := simulated(t, File(path))
	must(device.ReportAt(names(device)[0], 0, 3))(t)
	if err := device.Forget("another"); !errors.Is(err, ErrValue) || len(must(device.Waiting())(t)) != 1 {
		t.Error(err)
	}
	err := device.Forget("rest")
	if text, _ := os.ReadFile(path); err != nil || len(text) != 0 {
		t.Errorf("%q %v", text, err)
	}
	if _, err := device.Waiting(); !errors.Is(err, ErrStoreCleared) {
		t.Error(err)
	}
}

// failing gives some bytes, and then an error, as a crash in the middle of a call.
type failing struct {
	left   int
	source *mathrand.ChaCha8
}

func (f *failing) Read(buffer []byte) (int, error) {
	if f.left -= len(buffer); f.left < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return f.source.Read(buffer)
}

func TestACallThatFailsInTheMiddleChangesNothing(t *testing.T) {
	survey := rest(t, "To know more", 30)
	opened := 0
	for left := range 60 {
		store, random := Memory(), &failing{left, mathrand.NewChaCha8([32]byte{7})}
		device, err := Open(survey, store, Options{Consent: ModeSimulated, Random: random})
		if err != nil {
			if !errors.Is(err, ErrRandom) || !errors.Is(err, io.ErrUnexpectedEOF) || len(store.text) != 0 {
				t.Errorf("%s: %v", store.text, err)
			}
			continue
		}
		opened++
		for step := int64(0); err == nil && step < 1000; step++ {
			before := bytes.Clone(store.text)
			if _, err = device.ReportAt(names(device)[0], 0, step); err != nil && !bytes.Equal(before, store.text) {
				t.Errorf("the failed call changed %s to %s", before, store.text)
			}
		}
		if !errors.Is(err, ErrRandom) {
			t.Error(err)
		}
	}
	if opened < 20 {
		t.Errorf("only %d devices enrolled", opened)
	}
}

func TestAnyClock(t *testing.T) {
	survey := rest(t, "To know more", 30)
	for _, year := range []int{1, 1970, 2100, 9999} {
		clock := func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
		device := must(open(survey, Memory(), Options{Consent: ModeSimulated}, clock, false))(t)
		name := names(device)[0]
		envelope, silence := must(device.Report(name, 0))(t), must(device.Silence(name))(t)
		if (envelope == nil) != (year < 2000) || (silence == SilenceSurveyNotBegun) != (year < 2000) {
			t.Errorf("year %d: %x, silence %q", year, envelope, silence)
		}
		shown := must(device.Preview(Values{name: 0}))(t)
		if (shown[0].Envelope == nil) != (year < 2000) || !strings.Contains(shown[0].String(), "leaves") {
			t.Errorf("year %d: %v", year, shown[0])
		}
	}
	for _, step := range []int64{-1, mostStep + 1, math.MaxInt64, math.MinInt64} {
		if _, err := simulated(t, Memory()).ReportAt("language", 0, step); !errors.Is(err, ErrValue) {
			t.Errorf("step %d: %v", step, err)
		}
	}
}

// places returns the paths of all keys of a document.
func places(at []string, value any, found *[][]string) {
	switch all := value.(type) {
	case map[string]any:
		for key, one := range all {
			path := append(slices.Clone(at), key)
			*found = append(*found, path)
			places(path, one, found)
		}
	case []any:
		for _, one := range all {
			places(at, one, found)
		}
	}
}

// change sets a key wherever the path leads to it through lists.
func change(value any, path []string, to any) {
	switch all := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			all[path[0]] = to
		} else {
			change(all[path[0]], path[1:], to)
		}
	case []any:
		for _, one := range all {
			change(one, path, to)
		}
	}
}

// What a hostile server may write anywhere, also into the canonical text: a panic would end the program of a person.
func TestMutatedSurveys(t *testing.T) {
	wrong := []any{0, 1, math.MaxInt64, math.MinInt64, 1 << 40, 0.5, 1e300, "", "00", nil, []any{}, map[string]any{}, []any{nil}}
	refused, accepted := 0, 0
	lives := append(vectors.Read[life](t, "devices")[:2], vectors.Read[life](t, "relay_lives")[0])
	for _, one := range lives {
		fresh := func() (document map[string]any) {
			json.Unmarshal(one.Survey, &document)
			var canonical any
			json.Unmarshal([]byte(document["canonical"].(string)), &canonical)
			document["canonical"] = canonical
			return document
		}
		var found [][]string
		places(nil, fresh(), &found)
		for _, path := range found {
			for _, value := range wrong {
				for _, everywhere := range []bool{false, true} {
					document := fresh()
					for _, other := range found {
						if slices.Equal(other, path) || everywhere && other[len(other)-1] == path[len(path)-1] {
							change(document, other, value)
						}
					}
					canonical, _ := json.Marshal(document["canonical"])
					hash := sha256.Sum256(canonical)
					document["canonical"], document["fingerprint"] = string(canonical), hex.EncodeToString(hash[:8])
					text, _ := json.Marshal(document)
					survey, err := ParseSurvey(text)
					if err != nil {
						refused++
						continue
					}
					accepted++
					use(t, survey, one)
				}
			}
		}
	}
	if refused < 1000 || accepted < 100 {
		t.Errorf("%d refused, %d accepted", refused, accepted)
	}
}

// use calls what a program calls.
func use(t *testing.T, survey *Survey, one life) {
	options := Options{Consent: ModeSimulated}
	if cohort := survey.inner.Text.Cohort; cohort != nil {
		options.Cohort = cohort.Values[0]
	}
	device, err := Open(survey, Memory(), options)
	if err != nil {
		return
	}
	device.Question()
	for _, call := range one.Calls[:2] {
		device.ReportAt(call.Attribute, call.Value, call.Step)
		device.ReportAt(call.Attribute, call.Value, mostStep)
		device.Report(call.Attribute, call.Value)
		shown, _ := device.Preview(Values{call.Attribute: call.Value})
		for _, preview := range shown {
			_ = preview.String()
		}
		device.Spent(call.Attribute)
	}
	survey.Closes(mostStep)
	survey.LargestEnvelope()
	for _, report := range must(device.Waiting())(t) {
		device.Leaves(report.Key, false)
		device.Settle(report.Key)
	}
	if err := device.WithdrawConsent(); err != nil {
		t.Fatal(err)
	}
}
