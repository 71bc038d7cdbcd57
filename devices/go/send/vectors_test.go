package send

import (
	"bytes"
	"crypto/hpke"
	"encoding/json"
	"strconv"
	"testing"

	"ldpstream/device"
	"ldpstream/device/internal/vectors"
)

// The device's private key of a vector cannot be given to the library: the gateway's key opens the vector's capsule and ours.
func TestRelayRequests(t *testing.T) {
	survey, err := device.ParseSurvey(vectors.Read[struct{ Survey json.RawMessage }](t, "relay_lives")[0].Survey)
	if err != nil {
		t.Fatal(err)
	}
	type request struct {
		Gateway, Keys, Token, Key          string
		GatewayPrivate                     vectors.Hex `json:"gateway_private"`
		Envelope, Message, Capsule, Answer vectors.Hex
		Status                             int
		RetryAfter                         *int `json:"retry_after"`
	}
	for _, c := range vectors.Read[request](t, "relay_requests") {
		relay, err := NewRelay("https://relay.example", c.Gateway, c.Keys)
		if err != nil {
			t.Fatal(err)
		}
		message := relay.message(device.Waiting{Envelope: c.Envelope, Key: c.Key}, c.Token, survey.LargestEnvelope())
		if !bytes.Equal(message, c.Message) {
			t.Errorf("message %x, not %x", message, c.Message)
		}
		kem, _ := hpke.NewKEM(ids[0])
		private, err := kem.NewPrivateKey(c.GatewayPrivate)
		if err != nil {
			t.Fatal(err)
		}
		ours, _, err := relay.key.seal(message)
		if err != nil {
			t.Fatal(err)
		}
		for _, capsule := range [][]byte{c.Capsule, ours} {
			head, encapsulated, sealed := capsule[:7], capsule[7:7+publicBytes], capsule[7+publicBytes:]
			recipient, err := hpke.NewRecipient(encapsulated, private, hpke.HKDFSHA256(), hpke.AES128GCM(), relay.key.info())
			if err != nil || !bytes.Equal(head, relay.key.head()) {
				t.Fatalf("head %x: %v", head, err)
			}
			if opened, err := recipient.Open(nil, sealed); err != nil || !bytes.Equal(opened, message) {
				t.Errorf("%x does not open: %v", capsule, err)
			}
			if !bytes.Equal(capsule, c.Capsule) {
				continue
			}
			secret, err := recipient.Export(responseLabel, nonceBytes)
			if err != nil {
				t.Fatal(err)
			}
			keys := &exchange{encapsulated, secret}
			opened, err := keys.open(c.Answer)
			if err != nil {
				t.Fatal(err)
			}
			expected := ""
			if c.RetryAfter != nil {
				expected = strconv.Itoa(*c.RetryAfter)
			}
			if status, told, _, ok := binaryResponse(opened); !ok || status != c.Status || told.Get("Retry-After") != expected {
				t.Errorf("status %d, Retry-After %s", status, told.Get("Retry-After"))
			}
			if _, err := keys.open(make([]byte, 64)); err == nil {
				t.Error("opens another answer")
			}
		}
	}
}
