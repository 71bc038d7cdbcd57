// Package mechanism has the mechanisms: their parameters, draws and losses. Its formulas are those of docs/reference/write_a_device.md.
package mechanism

import (
	"encoding/hex"
	"encoding/json"
)

// Coin says yes with the probability 0.digits (base 256), or with one minus that if it is inverted.
type Coin struct {
	digits   []byte
	inverted bool
}

// Coins has the coins of one round by name.
type Coins = map[string]Coin

// UnmarshalJSON reads {"digits": hexadecimal digits, "inverted": boolean}.
func (c *Coin) UnmarshalJSON(text []byte) error {
	var raw struct {
		Digits   string `json:"digits"`
		Inverted bool   `json:"inverted"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	digits, err := hex.DecodeString(raw.Digits)
	c.digits, c.inverted = digits, raw.Inverted
	return err
}

// Smaller returns the smaller probability, rounded to a double.
func (c Coin) Smaller() float64 {
	s := 0.0
	for i := len(c.digits) - 1; i >= 0; i-- {
		s = (s + float64(c.digits[i])) / 256
	}
	return s
}

// Inverted tells whether yes has the larger probability.
func (c Coin) Inverted() bool { return c.inverted }

// valid tells whether the digits state the smaller probability.
func (c Coin) valid() bool { return len(c.digits) == 0 || c.digits[0] <= 0x80 }

func (c Coin) probabilities() (yes, no float64) {
	s := c.Smaller()
	if c.inverted {
		return 1 - s, s
	}
	return s, 1 - s
}
