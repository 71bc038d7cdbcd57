package device

import "ldpstream/device/internal/fault"

// The kinds of errors, for [errors.Is]. Each error's text begins with the name of its kind in docs/reference/write_a_device.md. An
// error of the operating system is wrapped, too. No error contains a person's value.
var (
	// ErrValue says that an argument is wrong, such as a value that the attribute does not have.
	ErrValue = fault.Value
	// ErrUnsafeSurvey says that a check of the device survey failed: the survey could reveal more than it promises.
	ErrUnsafeSurvey = fault.UnsafeSurvey
	// ErrUnknownSurvey says that the device does not know the format, a mechanism or the collection, or cannot read the document.
	ErrUnknownSurvey = fault.UnknownSurvey
	// ErrNotSigned says that the survey lacks a signature that the application requires.
	ErrNotSigned = fault.NotSigned
	// ErrRelayRequired says that the survey requires a relay, and the sender has none.
	ErrRelayRequired = fault.RelayRequired
	// ErrWrongSurvey says that the pin or the store belongs to another survey.
	ErrWrongSurvey = fault.WrongSurvey
	// ErrCostlySurvey says that the survey may lose more than the application allows.
	ErrCostlySurvey = fault.CostlySurvey
	// ErrStoreHeld says that another process holds the store.
	ErrStoreHeld = fault.StoreHeld
	// ErrStoreFull says that the disk or the quota is full.
	ErrStoreFull = fault.StoreFull
	// ErrStoreCleared says that the store of an enrolled device is missing or empty.
	ErrStoreCleared = fault.StoreCleared
	// ErrStore says that the store is damaged, of a later version, or cannot be used for another reason.
	ErrStore = fault.Store
	// ErrStepForgotten says that the step can no longer be reported.
	ErrStepForgotten = fault.StepForgotten
	// ErrClockWentBack is a kind of [ErrStepForgotten]: the present step can no longer be reported, since the clock was wrong
	// earlier or is wrong now.
	ErrClockWentBack = fault.ClockWentBack
	// ErrWalletFull says that the survey's claim does not fit the wallet.
	ErrWalletFull = fault.WalletFull
	// ErrRandom says that the source gave no random bytes.
	ErrRandom = fault.Random
)
