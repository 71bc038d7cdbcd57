package send

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ldpstream/device"
	"ldpstream/device/internal/vectors"
)

// gateway answers each request by the next entry of a script, and then accepts.
type gateway struct {
	*httptest.Server
	script   []func(http.ResponseWriter)
	requests []*http.Request
	bodies   []string
}

func newGateway(t *testing.T, script ...func(http.ResponseWriter)) *gateway {
	g := &gateway{script: script}
	g.Server = httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		g.requests, g.bodies = append(g.requests, request), append(g.bodies, string(body))
		respond := status(http.StatusAccepted, `{"accepted": 1}`)
		if len(g.script) > 0 {
			respond, g.script = g.script[0], g.script[1:]
		}
		respond(answer)
	}))
	t.Cleanup(g.Close)
	return g
}

// status answers with a body and headers, each a name and a value.
func status(code int, body string, headers ...[2]string) func(http.ResponseWriter) {
	return func(answer http.ResponseWriter) {
		for _, header := range headers {
			answer.Header().Set(header[0], header[1])
		}
		answer.WriteHeader(code)
		io.WriteString(answer, body)
	}
}

// waiting opens a device with one report of a step, of the survey of the examples or the vectors' survey with a relay.
func waiting(t *testing.T, relayed bool) *device.Device {
	t.Helper()
	text, err := os.ReadFile("../testdata/theme.json")
	options := device.Options{Consent: device.ModeSimulated}
	if relayed {
		type life struct {
			Survey json.RawMessage
			Calls  []struct{ Cohort string }
		}
		one := vectors.Read[life](t, "relay_lives")[0]
		text, options.Cohort = one.Survey, one.Calls[0].Cohort
	}
	if err != nil {
		t.Fatal(err)
	}
	survey, err := device.ParseSurvey(text)
	if err != nil {
		t.Fatal(err)
	}
	for {
		d, err := device.Open(survey, device.Memory(), options)
		if err != nil {
			t.Fatal(err)
		}
		values := device.Values{}
		for _, a := range survey.Attributes() {
			if values[a.Name] = 0; a.TakesList {
				delete(values, a.Name)
			}
		}
		if made, err := d.AnswerAt(values, 3); err != nil {
			t.Fatal(err)
		} else if len(made) > 0 { // otherwise chance drew an attribute or a phase without a report
			return d
		}
	}
}

func TestAnswersThatAreNotFinalKeepTheReportAndItsKey(t *testing.T) {
	accepted := `{"accepted": 1}`
	for _, c := range []struct {
		answer func(http.ResponseWriter)
		wait   time.Duration
		reason string
	}{
		{status(202, "<html>a proxy</html>"), 0, "status 202"},
		{status(202, `{"accepted": "1"}`), 0, "status 202"},
		{status(422, "{}"), 0, "status 422"},
		{status(302, accepted, [2]string{"Location", "/v1/reports"}), 0, "status 302"},
		{status(429, `{"type": "urn:ldpstream:problem:too-many-requests"}`, [2]string{"Retry-After", "7"}), 7 * time.Second, "too many requests (429)"},
		{status(503, "", [2]string{"Retry-After", "99999999999999999999"}), 24 * time.Hour, "status 503"},
		{status(503, "", [2]string{"Retry-After", "Fri, 01 Jan 2100 00:00:09 GMT"}, [2]string{"Date", "Fri, 01 Jan 2100 00:00:00 GMT"}),
			9 * time.Second, "status 503"},
		{status(503, "", [2]string{"Retry-After", "-1"}), 0, "status 503"},
	} {
		g, d := newGateway(t, c.answer), waiting(t, false)
		sender, err := New(d, Direct(g.URL+"/"), "secret")
		if err != nil {
			t.Fatal(err)
		}
		outcome, err := sender.Attempt(t.Context())
		if err != nil || outcome.Waiting != 1 || outcome.RetryAfter != c.wait || !slices.Equal(outcome.Reasons, []string{c.reason}) {
			t.Errorf("%s: %+v %v", c.reason, outcome, err)
		}
		if outcome, err = sender.Attempt(t.Context()); err != nil || outcome.Accepted != 1 || outcome.Waiting != 0 {
			t.Errorf("%s: %+v %v", c.reason, outcome, err)
		}
		first, second := g.requests[0], g.requests[1]
		if g.bodies[0] != g.bodies[1] || first.Header.Get("Idempotency-Key") != second.Header.Get("Idempotency-Key") ||
			first.Header.Get("Authorization") != "Bearer secret" || first.URL.Path != "/v1/reports" || len(g.requests) != 2 {
			t.Errorf("%v and %v differ", first, second)
		}
		if journal, err := d.Journal(); err != nil || len(journal) != 1 || journal[0].Local {
			t.Errorf("%v %v", journal, err) // the report once
		}
		if len(first.Header) != 6 || first.UserAgent() != "ldpstream" { // the same for all devices
			t.Error(first.Header)
		}
	}
}

func TestARefusedReportIsSettledAndNoGatewayIsNoAnswer(t *testing.T) {
	g, d := newGateway(t, status(422, `{"type": "urn:ldpstream:problem:step-too-old"}`)), waiting(t, false)
	sender, _ := New(d, Direct(g.URL), "")
	outcome, err := sender.Attempt(t.Context())
	if err != nil || outcome.Refused != 1 || outcome.Waiting != 0 || outcome.Reasons[0] != "step too old (422)" {
		t.Errorf("%+v %v", outcome, err)
	}
	d = waiting(t, false)
	g.Close()
	sender, _ = New(d, Direct(g.URL), "secret")
	outcome, err = sender.Attempt(t.Context())
	if err != nil || outcome.Waiting != 1 || !strings.Contains(outcome.Reasons[0], "connection refused") {
		t.Errorf("%+v %v", outcome, err)
	}
}

func TestACancelledContextKeepsTheReports(t *testing.T) {
	g, d := newGateway(t, status(503, "", [2]string{"Retry-After", "3600"})), waiting(t, false)
	sender, _ := New(d, Direct(g.URL), "")
	ctx, cancel := context.WithCancel(t.Context())
	g.script[0] = func(answer http.ResponseWriter) {
		status(503, "", [2]string{"Retry-After", "3600"})(answer)
		cancel()
	}
	if err := sender.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, err := d.Waiting(); err != nil || len(left) != 1 || len(g.requests) != 1 {
		t.Errorf("%v %v", left, err)
	}
	if _, err := sender.Attempt(ctx); !errors.Is(err, context.Canceled) || len(g.requests) != 1 {
		t.Error(err)
	}
}

func TestTheLocalWaySendsNothing(t *testing.T) {
	d := waiting(t, false)
	sender, _ := New(d, Local{}, "")
	if err := sender.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	journal, err := d.Journal()
	if err != nil || len(journal) != 1 || !journal[0].Local {
		t.Errorf("%v %v", journal, err)
	}
}

// relayed is a relay and its gateway in one server, which answers inside the capsule.
func relayed(t *testing.T, private hpke.PrivateKey, id byte, answers *[]func() (code uint16, retryAfter, body string)) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		capsule, _ := io.ReadAll(request.Body)
		key := &gatewayKey{id, private.PublicKey()}
		recipient, err := hpke.NewRecipient(capsule[7:39], private, hpke.HKDFSHA256(), hpke.AES128GCM(), key.info())
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := recipient.Open(nil, capsule[39:]); err != nil || request.Header.Get("Authorization") != "" {
			t.Error(err, request.Header)
		}
		secret, _ := recipient.Export(responseLabel, nonceBytes)
		code, retryAfter, body := (*answers)[0]()
		*answers = (*answers)[1:]
		message := binary.BigEndian.AppendUint16([]byte{1}, code|1<<14)
		fields := part(part(nil, "retry-after"), retryAfter)
		message = part(part(message, string(fields)), body)
		nonce := bytes.Repeat([]byte{7}, nonceBytes)
		aead, number, err := (&exchange{capsule[7:39], secret}).cipher(nonce)
		if err != nil {
			t.Error(err)
		}
		answer.Write(aead.Seal(nonce, number, message, nil))
	}))
	t.Cleanup(server.Close)
	return server
}

func TestAReportThroughARelayWaitsForItsMoment(t *testing.T) {
	random, _ := ecdh.X25519().GenerateKey(rand.Reader)
	private, err := hpke.NewDHKEMPrivateKey(random)
	if err != nil {
		t.Fatal(err)
	}
	configuration := append([]byte{9, 0, 0x20}, random.PublicKey().Bytes()...)
	configuration = append(configuration, 0, 4, 0, 1, 0, 1)
	document := append([]byte{0, byte(len(configuration))}, configuration...)
	busy := func() (uint16, string, string) { return 503, "86400", "" }
	taken := func() (uint16, string, string) { return 202, "0", `{"accepted": 1}` }
	answers := []func() (uint16, string, string){busy, taken}
	server := relayed(t, private, 9, &answers)
	relay, err := NewRelay(server.URL, "https://gateway.example", base64.StdEncoding.EncodeToString(document))
	if err != nil {
		t.Fatal(err)
	}
	d := waiting(t, true)
	if _, err := New(d, Direct(server.URL), ""); !errors.Is(err, device.ErrRelayRequired) {
		t.Error(err)
	}
	if _, err := New(waiting(t, false), relay, ""); !errors.Is(err, device.ErrValue) {
		t.Error(err)
	}
	sender, err := New(d, relay, "secret")
	if err != nil {
		t.Fatal(err)
	}
	reports, _ := d.Waiting() // their moments are in the past
	outcome, err := sender.Attempt(t.Context())
	if err != nil || outcome.Waiting != len(reports) || outcome.Accepted != 0 || outcome.Reasons[0] != "status 503" {
		t.Errorf("%+v %v", outcome, err)
	}
	latest := slices.MaxFunc(slices.Collect(maps.Values(sender.next)), time.Time.Compare)
	if wait := time.Until(latest); wait < 24*time.Hour-time.Minute { // no false alarm; a sender that waits 25 hours at random seldom passes
		t.Errorf("the report is sent again in %v", wait)
	}
	if again, err := sender.Attempt(t.Context()); err != nil || again.Waiting != outcome.Waiting || len(answers) != 1 {
		t.Errorf("%+v %v", again, err) // every report has a later moment
	}
	clear(sender.next)
	if outcome, err = sender.Attempt(t.Context()); err != nil || outcome.Accepted != 1 || outcome.Waiting != len(reports)-1 {
		t.Errorf("%+v %v", outcome, err)
	}
}

func TestWrongAddressesAndKeysAreErrors(t *testing.T) {
	d := waiting(t, false)
	for _, wrong := range []string{"", "gateway.example", "ftp://gateway.example", "http://", "http://me:secret@gateway.example", "http://a b"} {
		if _, err := New(d, Direct(wrong), ""); !errors.Is(err, device.ErrValue) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	for _, wrong := range [][3]string{
		{"relay.example", "https://gateway.example", ""}, {"https://relay.example", "https://gateway.example/path", ""},
		{"https://relay.example", "https://gateway.example", "no base64!"}, {"https://relay.example", "https://gateway.example", "AAA="},
	} {
		if _, err := NewRelay(wrong[0], wrong[1], wrong[2]); !errors.Is(err, device.ErrValue) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

// A relay can send any bytes.
func TestDamagedMessagesAreNoAnswers(t *testing.T) {
	for _, message := range [][]byte{{}, {1}, {0, 0x40, 200, 0}, {1, 0x40, 200, 5}, {1, 0x40, 100, 0}, {1, 0xff}, {1, 0x40, 200, 2, 9, 9}} {
		if _, _, _, ok := binaryResponse(message); ok {
			t.Errorf("%x is a response", message)
		}
	}
	for _, document := range [][]byte{{0}, {0, 9, 1}, make([]byte, 60), append([]byte{0, 41, 1, 0, 0x20}, make([]byte, 38)...)} {
		if _, err := firstKey(document); err == nil {
			t.Errorf("%x has a key", document)
		}
	}
}
