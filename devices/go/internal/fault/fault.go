// Package fault has the kinds of errors that a device can give.
package fault

import (
	"errors"
	"fmt"
)

// The names are those of docs/reference/write_a_device.md. The package device documents each kind.
var (
	Value         = errors.New("ValueError")
	UnsafeSurvey  = errors.New("UnsafeSurvey")
	UnknownSurvey = errors.New("UnknownSurvey")
	NotSigned     = errors.New("NotSigned")
	RelayRequired = errors.New("RelayRequired")
	WrongSurvey   = errors.New("WrongSurvey")
	CostlySurvey  = errors.New("CostlySurvey")
	StoreHeld     = errors.New("StoreHeld")
	StoreFull     = errors.New("StoreFull")
	StoreCleared  = errors.New("StoreCleared")
	Store         = errors.New("StoreError")
	StepForgotten = errors.New("StepForgotten")
	WalletFull    = errors.New("WalletFull")
	Random        = errors.New("RandomError")

	ClockWentBack error = clockWentBack{}
)

type clockWentBack struct{}

func (clockWentBack) Error() string        { return "ClockWentBack" }
func (clockWentBack) Is(target error) bool { return target == StepForgotten }

// New makes an error of a kind. The text must not contain a person's value.
func New(kind error, format string, arguments ...any) error {
	return fmt.Errorf("%w: %w", kind, fmt.Errorf(format, arguments...))
}
