package survey

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"

	"ldpstream/device/internal/fault"
	"ldpstream/device/internal/mechanism"
	"ldpstream/device/internal/vectors"
	"ldpstream/device/internal/wire"
)

// surveys returns the surveys of the vectors by fingerprint.
func surveys(t *testing.T) map[string]*Survey {
	type parameters struct {
		Canonical  string
		Mechanisms [][]*mechanism.Parameters
	}
	known := map[string]*Survey{}
	for _, c := range vectors.Read[parameters](t, "parameters") {
		s, err := Checked("vector", c.Canonical, c.Mechanisms)
		if err != nil {
			t.Fatal(err)
		}
		known[hex.EncodeToString(s.Fingerprint[:])] = s
	}
	return known
}

func TestSurveys(t *testing.T) {
	known := surveys(t)
	for _, c := range vectors.Read[struct{ Canonical, Fingerprint, Pin string }](t, "surveys") {
		if s := known[c.Fingerprint]; s == nil || s.Pin != c.Pin || s.Canonical != c.Canonical {
			t.Errorf("%s has another fingerprint or pin", c.Canonical)
		}
	}
}

func TestForged(t *testing.T) {
	type forged struct {
		Fault  string
		Survey json.RawMessage
	}
	for _, c := range vectors.Read[forged](t, "forged") {
		if _, err := Parse(c.Survey); !errors.Is(err, fault.UnsafeSurvey) && !errors.Is(err, fault.UnknownSurvey) {
			t.Errorf("%s: %v", c.Fault, err)
		}
	}
}

func TestValues(t *testing.T) {
	type values struct {
		Fingerprint, Attribute string
		Cases                  [][2]any
	}
	known := surveys(t)
	for _, c := range vectors.Read[values](t, "values") {
		s := known[c.Fingerprint]
		place, err := s.Place(c.Attribute)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range c.Cases {
			index, err := s.Text.Attribute[place].Index(one[0])
			if expected, valid := one[1].(float64); valid != (err == nil) || valid && index != int64(expected) {
				t.Errorf("%s: %v is %d, %v", c.Attribute, one[0], index, err)
			}
		}
	}
}

func TestClaims(t *testing.T) {
	type claims struct {
		Fingerprint   string
		Levels        []int
		WindowSeconds int64 `json:"window_s"`
		Losses        []float64
		PerWindow     *float64 `json:"per_window"`
		ForEver       *float64 `json:"for_ever"`
	}
	known := surveys(t)
	for _, c := range vectors.Read[claims](t, "claims") {
		claim := known[c.Fingerprint].Claim(c.Levels, c.WindowSeconds)
		for a := range c.Losses {
			if !vectors.Close(claim.Losses[a], &c.Losses[a]) {
				t.Errorf("%s: %v", c.Fingerprint, claim)
			}
		}
		if !vectors.Close(claim.PerWindow, c.PerWindow) || !vectors.Close(claim.ForEver, c.ForEver) {
			t.Errorf("%s: %v", c.Fingerprint, claim)
		}
	}
}

func TestSignatures(t *testing.T) {
	type signatures struct {
		Case, Pin string
		Signature *Signature
		SignedBy  []string `json:"signed_by"`
		Accepted  bool
	}
	for _, c := range vectors.Read[signatures](t, "signatures") {
		s := &Survey{Name: "vector", Pin: c.Pin}
		if c.Signature != nil {
			s.Signatures = []Signature{*c.Signature}
		}
		err := s.RequireSigned(c.SignedBy, nil)
		if (err == nil) != c.Accepted || err != nil && !errors.Is(err, fault.NotSigned) {
			t.Errorf("%s: %v", c.Case, err)
		}
	}
}

func TestWords(t *testing.T) {
	type words struct {
		Survey   json.RawMessage
		Question string
		Parts    [][][2]string
	}
	for _, c := range vectors.Read[words](t, "words") {
		s, err := Parse(c.Survey)
		if err != nil {
			t.Fatal(err)
		}
		if asked := s.Question(make([]int, len(s.Text.Attribute))); asked != c.Question {
			t.Errorf("%s\nis not\n%s", asked, c.Question)
		}
		for _, parts := range c.Parts {
			digits := ""
			for _, part := range parts {
				digits += part[0]
			}
			envelope, _ := hex.DecodeString(digits)
			for i, part := range s.Explained(envelope) {
				if hex.EncodeToString(part.Data) != parts[i][0] || part.Reveals != parts[i][1] {
					t.Errorf("%x: %s is not %s", part.Data, part.Reveals, parts[i])
				}
			}
		}
	}
}

func TestEnvelopes(t *testing.T) {
	type envelopes struct {
		Fingerprint, Rows, Envelope vectors.Hex
		Attribute, Level, N         int
		Step                        uint64
		Cohort                      *int
	}
	for _, c := range vectors.Read[envelopes](t, "envelopes") {
		got := wire.Seal(wire.Head{Fingerprint: [8]byte(c.Fingerprint), Attribute: c.Attribute, Level: c.Level, Step: c.Step, Cohort: c.Cohort}, c.N, c.Rows)
		if string(got) != string(c.Envelope) {
			t.Errorf("step %d: envelope %x, not %x", c.Step, got, c.Envelope)
		}
	}
}
