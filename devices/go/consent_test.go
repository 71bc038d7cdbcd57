package device

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// counting counts the bytes that a device draws.
type counting struct{ n int }

func (c *counting) Read(buffer []byte) (int, error) {
	c.n += len(buffer)
	return rand.Read(buffer)
}

func TestBeforeConsentNothingIsDrawnKeptOrSent(t *testing.T) {
	random, store := &counting{}, Memory()
	device := must(Open(rest(t, "To know more", 30), store, Options{Random: random}))(t)
	name := names(device)[0]
	if consent := must(device.Consent())(t); consent != ConsentUnknown || !slices.Equal(must(device.ToAsk())(t), names(device)) {
		t.Error(consent)
	}
	if envelope := must(device.ReportAt(name, 0, 3))(t); envelope != nil {
		t.Errorf("report %x", envelope)
	}
	if silence := must(device.SilenceAt(name, 3))(t); silence != SilenceConsentUnknown {
		t.Error(silence)
	}
	if len(must(device.Waiting())(t))+len(must(device.Journal())(t))+random.n+len(store.text) != 0 {
		t.Errorf("%d bytes drawn, the store has %q", random.n, store.text)
	}
	if !strings.Contains(device.Question(), "Purpose: To know more\nAsked by: A team\n") {
		t.Error(device.Question())
	}
	shown := must(device.PreviewAt(Values{name: 0}, 3))(t)
	if !shown[0].Example || shown[0].Silence != SilenceConsentUnknown || shown[0].Envelope == nil || len(store.text) != 0 {
		t.Error(shown[0])
	}
}

func TestAWithdrawalEndsSendingAlsoForAnotherObject(t *testing.T) {
	survey, store := rest(t, "To know more", 30), Memory()
	device, other := must(Open(survey, store, Options{}))(t), must(Open(survey, store, Options{}))(t)
	if err := device.GiveConsent(); err != nil {
		t.Fatal(err)
	}
	name := names(device)[0]
	must(device.ReportAt(name, 0, 3))(t)
	waiting := must(other.Waiting())(t)
	if err := device.WithdrawConsent(); err != nil {
		t.Fatal(err)
	}
	if must(other.Leaves(waiting[0].Key, false))(t) { // a report on its way in another process
		t.Error("the report leaves")
	}
	for _, one := range []*Device{device, other, must(Open(survey, store, Options{}))(t)} {
		consent := must(one.Consent())(t)
		if len(must(one.Waiting())(t))+len(must(one.Journal())(t))+len(must(one.ToAsk())(t)) != 0 || consent != ConsentWithdrawn {
			t.Error(consent)
		}
	}
	if digits := survey.Pin()[:16]; bytes.Contains(store.text, []byte("c408"+digits)) {
		t.Errorf("the store still has a report: %s", store.text)
	}
	if err := other.GiveConsent(); err != nil || must(device.ReportAt(name, 0, 3))(t) == nil {
		t.Error("no report after a new consent", err)
	}
}

func TestAWithdrawalLeavesNoReportInAWallet(t *testing.T) {
	store := Memory()
	wallet := must(OpenWallet(store, Budget{PerWindow: 1e9, Window: time.Hour}, false))(t)
	device := must(wallet.Device(rest(t, "To know more", 30), Options{Consent: ModeSimulated}))(t)
	must(device.ReportAt(names(device)[0], 0, device.Survey().StepAt(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))))(t)
	must(device.Leaves(must(device.Waiting())(t)[0].Key, false))(t)
	digits := []byte("c408" + device.Survey().Pin()[:16])
	if bytes.Count(store.text, digits) != 2 { // the report, and its copy in the journal
		t.Errorf("%s", store.text)
	}
	if err := device.WithdrawConsent(); err != nil || bytes.Contains(store.text, digits) {
		t.Errorf("%s %v", store.text, err)
	}
	if spent := must(wallet.Spent())(t); spent.Spent <= 0 {
		t.Error(spent)
	}
	for _, wrong := range []Budget{{}, {PerWindow: 1}, {Window: time.Second}, {ForEver: -1}, {PerWindow: 1, Window: time.Millisecond}} {
		if _, err := OpenWallet(Memory(), wrong, false); !errors.Is(err, ErrValue) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if _, err := OpenWallet(store, Budget{ForEver: 1}, false); !errors.Is(err, ErrStore) {
		t.Error(err)
	}
	if _, err := Open(device.Survey(), store, Options{}); !errors.Is(err, ErrStore) {
		t.Error(err)
	}
}

func TestTheConsentToOneAttributeCanBeWithdrawn(t *testing.T) {
	device := must(Open(rest(t, "To know more", 30), Memory(), Options{}))(t)
	first, second := names(device)[0], names(device)[1]
	if err := device.GiveConsent(); err != nil {
		t.Fatal(err)
	}
	must(device.AnswerAt(Values{first: 0, second: 0}, 3))(t)
	if err := device.WithdrawConsent(first); err != nil {
		t.Fatal(err)
	}
	waiting := must(device.Waiting())(t)
	if silence := must(device.SilenceAt(first, 3))(t); silence != SilenceConsentWithdrawn || len(waiting) != 1 || waiting[0].Attribute != second {
		t.Error(silence, waiting)
	}
	if err := device.GiveConsent(first); err != nil {
		t.Fatal(err)
	}
	if _, err := device.ReportAt(first, 0, 3); !errors.Is(err, ErrStepForgotten) { // the step got its report
		t.Error(err)
	}
	must(device.ReportAt(first, 0, 4))(t)
	if spent := must(device.Spent(first))(t); spent.Reports != 2 || spent.EpsT != nil { // there were two memos
		t.Error(spent)
	}
}

func TestOtherTermsAskAgainAndShorterStorageDoesNot(t *testing.T) {
	store := Memory()
	if err := must(Open(rest(t, "To know more", 30), store, Options{}))(t).GiveConsent(); err != nil {
		t.Fatal(err)
	}
	for _, terms := range []struct {
		purpose string
		steps   int
		asks    bool
	}{{"To know more", 30, false}, {"To know more", 7, false}, {"To know more", 31, true}, {"To sell more", 30, true}} {
		device := must(Open(rest(t, terms.purpose, terms.steps), store, Options{}))(t)
		made := must(device.ReportAt(names(device)[0], 0, 3))(t)
		if asks := len(must(device.ToAsk())(t)) > 0; asks != terms.asks || (made == nil) != terms.asks {
			t.Errorf("%v: asks %v, report %x", terms, asks, made)
		}
	}
}

func TestSwitches(t *testing.T) {
	for value, off := range map[string]bool{"": false, "0": false, " No ": false, "FALSE": false, "1": true, "true": true, "\xff": true} {
		for _, name := range []string{"DO_NOT_TRACK", "CI"} {
			t.Setenv(name, value)
			store := Memory()
			device := must(Open(rest(t, "To know more", 30), store, Options{Consent: ModeGiven}))(t)
			activity := must(OpenActivity(Memory()))(t)
			activity.Seen()
			made, log := must(device.ReportAt(names(device)[0], 0, 3))(t), must(activity.log())(t)
			if (SwitchedOff() == name) != off || (made == nil) != off || (len(store.text) == 0) != off || (len(log.Days) == 0) != off {
				t.Errorf("%s=%q: report %x, log %v, store %q", name, value, made, log, store.text)
			}
			t.Setenv(name, "")
		}
	}
	folder := t.TempDir()
	t.Setenv("PROGRAMDATA", folder)
	file := filepath.Join(folder, "ldpstream", "off")
	if off := SwitchedOff(); off != "" {
		t.Error(off)
	}
	os.Mkdir(filepath.Dir(file), 0o700)
	if os.WriteFile(file, nil, 0o600); SwitchedOff() != file {
		t.Error(SwitchedOff())
	}
}

func TestWrongOptionsAreErrorsOfTheirKind(t *testing.T) {
	survey := rest(t, "To know more", 30)
	key := "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	for kind, all := range map[error][]Options{
		ErrValue: {{Pin: "12"}, {Levels: map[string]string{"language": "none"}}, {Levels: map[string]string{"none": "standard"}},
			{Cohort: "1.0"}, {SignedBy: []string{"no key"}}, {AlsoSignedBy: []string{key}}},
		ErrWrongSurvey:  {{Pin: strings.Repeat("0", 64)}},
		ErrCostlySurvey: {{MaxEps: 1e-9}},
		ErrNotSigned:    {{SignedBy: []string{key}}},
		ErrStoreCleared: {{ExpectEnrolled: true, Consent: ModeGiven}},
	} {
		for _, options := range all {
			store := Memory()
			if _, err := Open(survey, store, options); !errors.Is(err, kind) || len(store.text) != 0 {
				t.Errorf("%+v: %v", options, err)
			}
		}
	}
	device := must(Open(survey, Memory(), Options{Pin: survey.Pin(), Consent: ModeGiven}))(t)
	for _, values := range []Values{{"none": 0}, {"language": nil}, {"language": 3}, {"language": []int{0}}, {"language": struct{}{}}} {
		if _, err := device.AnswerAt(values, 3); !errors.Is(err, ErrValue) || strings.Contains(err.Error(), "3") {
			t.Errorf("%v: %v", values, err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", device, device, device); strings.ContainsAny(text, "{0") {
		t.Error(text)
	}
}

// ---- a program that is killed

const killed = "LDPSTREAM_TEST_STORE"

// TestKilledProgram is no test of its own: it reports step after step until somebody kills it.
func TestKilledProgram(t *testing.T) {
	path := os.Getenv(killed)
	if path == "" {
		return
	}
	device := simulated(t, File(path))
	for step := int64(0); ; step++ {
		for _, name := range names(device)[:2] {
			fmt.Printf("report %d %s %x\n", step, name, must(device.ReportAt(name, int(step)%3, step))(t))
		}
	}
}

func TestNoKillLosesAReportOrAMemo(t *testing.T) {
	checked := 0
	for lines := range 12 {
		path := filepath.Join(t.TempDir(), "a")
		program := exec.Command(os.Args[0], "-test.run=^TestKilledProgram$")
		program.Env = append(os.Environ(), killed+"="+path)
		pipe := must(program.StdoutPipe())(t)
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		told := bufio.NewScanner(pipe)
		reports := []string{}
		for len(reports) < 4*lines && told.Scan() {
			reports = append(reports, told.Text())
		}
		time.Sleep(time.Duration(lines) * 97 * time.Microsecond) // the kill meets another line each time
		program.Process.Kill()
		for told.Scan() {
			reports = append(reports, told.Text())
		}
		program.Wait()
		device := simulated(t, File(path))
		for _, line := range reports {
			var step int64
			var name, digits string
			if n, _ := fmt.Sscanf(line, "report %d %s %s", &step, &name, &digits); n < 3 || len(digits)%2 == 1 {
				continue // the kill met the output
			}
			checked++
			if kept := must(device.ReportAt(name, 0, step))(t); !strings.HasPrefix(hex.EncodeToString(kept), digits) {
				t.Errorf("step %d: report %x, not %s", step, kept, digits)
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d reports are too few to check", checked)
	}
}
