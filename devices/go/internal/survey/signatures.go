package survey

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"slices"

	"ldpstream/device/internal/fault"
)

// Signature is a statement about a survey, and its Ed25519 signature in base64.
type Signature struct {
	Statement string `json:"statement"`
	Signature string `json:"signature"`
}

// RequireSigned requires a signature by one of the keys in base64, and a second one by one of the other keys.
func (s *Survey) RequireSigned(keys, others []string) error {
	if len(keys) == 0 && len(others) > 0 {
		return fault.New(fault.Value, "AlsoSignedBy needs SignedBy")
	}
	if slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(others, key) }) {
		return fault.New(fault.Value, "AlsoSignedBy must name other keys than SignedBy")
	}
	for _, keys := range [][]string{keys, others} {
		if len(keys) == 0 {
			continue
		}
		signed, err := s.signedBy(keys)
		if err != nil {
			return err
		}
		if !signed {
			return fault.New(fault.NotSigned, "survey %q has no signature by one of the required keys", s.Name)
		}
	}
	return nil
}

func (s *Survey) signedBy(keys []string) (bool, error) {
	signed := false
	for _, key := range keys {
		public, err := base64.StdEncoding.Strict().DecodeString(key)
		if err != nil || len(public) != ed25519.PublicKeySize {
			return false, fault.New(fault.Value, "a public key is 32 bytes in base64")
		}
		for _, one := range s.Signatures {
			signed = signed || one.verifies(public, s.Pin)
		}
	}
	return signed, nil
}

func (one Signature) verifies(public ed25519.PublicKey, pin string) bool {
	var statement struct {
		Format string `json:"format"`
		Pin    string `json:"canonical_sha256"`
	}
	signature, err := base64.StdEncoding.Strict().DecodeString(one.Signature)
	if err != nil || json.Unmarshal([]byte(one.Statement), &statement) != nil {
		return false
	}
	return statement.Format == "ldpstream survey signature 1" && statement.Pin == pin &&
		ed25519.Verify(public, []byte(one.Statement), signature)
}
