package send

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// The capsules of Oblivious HTTP (RFC 9458), with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM.
const (
	requestLabel  = "message/bhttp request"
	responseLabel = "message/bhttp response"
	publicBytes   = 32
	nonceBytes    = 16
)

var ids = [3]uint16{0x20, 1, 1} // of the algorithms

// gatewayKey is a key of the gateway, with its number.
type gatewayKey struct {
	id     byte
	public hpke.PublicKey
}

// firstKey returns the first configuration with our algorithms in a document of type application/ohttp-keys.
func firstKey(document []byte) (*gatewayKey, error) {
	malformed := errors.New("keys must have a key configuration with X25519, HKDF-SHA256 and AES-128-GCM")
	for len(document) >= 2 {
		size := int(binary.BigEndian.Uint16(document))
		if len(document) < 2+size {
			return nil, malformed
		}
		whole := document[2 : 2+size]
		document = document[2+size:]
		if len(whole) < 5+publicBytes || binary.BigEndian.Uint16(whole[1:]) != ids[0] {
			continue
		}
		suites := whole[5+publicBytes:]
		if len(suites) != int(binary.BigEndian.Uint16(whole[3+publicBytes:])) || len(suites)%4 != 0 {
			return nil, malformed
		}
		for ; len(suites) > 0; suites = suites[4:] {
			if binary.BigEndian.Uint16(suites) == ids[1] && binary.BigEndian.Uint16(suites[2:]) == ids[2] {
				kem, err := hpke.NewKEM(ids[0])
				if err != nil {
					return nil, err
				}
				public, err := kem.NewPublicKey(whole[3 : 3+publicBytes])
				return &gatewayKey{whole[0], public}, err
			}
		}
	}
	return nil, malformed
}

// exchange has the keys of the answer to one request.
type exchange struct {
	encapsulated, secret []byte
}

// head is the key's number and the algorithms.
func (k *gatewayKey) head() []byte {
	head := []byte{k.id}
	for _, id := range ids {
		head = binary.BigEndian.AppendUint16(head, id)
	}
	return head
}

// info binds an encryption to its head.
func (k *gatewayKey) info() []byte { return append([]byte(requestLabel+"\x00"), k.head()...) }

// seal encrypts a message for the gateway.
func (k *gatewayKey) seal(message []byte) (capsule []byte, keys *exchange, err error) {
	encapsulated, sender, err := hpke.NewSender(k.public, hpke.HKDFSHA256(), hpke.AES128GCM(), k.info())
	if err != nil {
		return nil, nil, err
	}
	sealed, err := sender.Seal(nil, message)
	if err != nil {
		return nil, nil, err
	}
	secret, err := sender.Export(responseLabel, nonceBytes)
	capsule = append(append(k.head(), encapsulated...), sealed...)
	return capsule, &exchange{encapsulated, secret}, err
}

var errForeign = errors.New("an answer that is not the gateway's")

// open decrypts the gateway's answer.
func (e *exchange) open(capsule []byte) ([]byte, error) {
	if len(capsule) < nonceBytes {
		return nil, errForeign
	}
	aead, number, err := e.cipher(capsule[:nonceBytes])
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, number, capsule[nonceBytes:], nil)
}

// cipher returns the cipher of the answer with a nonce, and the cipher's own nonce.
func (e *exchange) cipher(nonce []byte) (aead cipher.AEAD, number []byte, err error) {
	salt := append(append([]byte{}, e.encapsulated...), nonce...)
	prk, err := hkdf.Extract(sha256.New, e.secret, salt)
	if err != nil {
		return nil, nil, err
	}
	key, err := hkdf.Expand(sha256.New, prk, "key", 16)
	if err != nil {
		return nil, nil, err
	}
	if number, err = hkdf.Expand(sha256.New, prk, "nonce", 12); err != nil {
		return nil, nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, nil, err
	}
	aead, err = cipher.NewGCM(block)
	return aead, number, err
}
