package device

import (
	"time"

	"ldpstream/device/internal/fault"
	"ldpstream/device/internal/state"
)

const (
	leastNats = 1e-9
	mostNats  = 1e9
)

// Wallet is one store and one budget of a person, for all surveys of an application. It admits a survey if its claim and the
// present charges fit.
type Wallet struct {
	store Store
	clock func() time.Time
}

// Budget has a wallet's limits.
type Budget struct {
	PerWindow float64       // the largest loss between histories that differ only within a window, in nats; 0 for no limit
	Window    time.Duration // the length of the window in whole seconds
	ForEver   float64       // the largest loss between any two histories, in nats; 0 for no limit
}

// WalletSpent is the loss that a person has spent, in nats.
type WalletSpent struct {
	Spent            float64 // a bound of the loss of all reports so far between any two histories
	ChargedPerWindow float64 // the charges for the present window
	ChargedForEver   float64 // the charges for ever; infinite if a survey's claim has no bound
}

// OpenWallet opens the wallet of a store. The first use fixes the limits. If expectMade is true, an empty store is an error.
//
// It returns [ErrValue] for a wrong limit, [ErrStoreCleared] for an empty store, and [ErrStore] if the limits are others.
func OpenWallet(store Store, budget Budget, expectMade bool) (*Wallet, error) {
	return openWallet(store, budget, expectMade, time.Now)
}

func openWallet(store Store, budget Budget, expectMade bool, clock func() time.Time) (*Wallet, error) {
	limits, err := budget.limits()
	if err != nil {
		return nil, err
	}
	err = transaction(store, func(kept *state.State) (*state.State, error) {
		switch {
		case kept == nil && expectMade:
			return nil, fault.New(fault.StoreCleared, "%s: the wallet had been made", store)
		case kept == nil:
			return state.New(limits), nil
		case kept.Budget == nil || budgetOf(kept.Budget) != budget:
			return nil, fault.New(fault.Store, "%s: the wallet has other limits", store)
		}
		return kept, nil
	})
	if err != nil {
		return nil, err
	}
	return &Wallet{store, clock}, nil
}

func (b Budget) limits() (*state.Budget, error) {
	limits := &state.Budget{}
	for _, one := range []struct {
		limit float64
		kept  **float64
	}{{b.PerWindow, &limits.PerWindow}, {b.ForEver, &limits.ForEver}} {
		if one.limit != 0 && !(one.limit >= leastNats && one.limit <= mostNats) {
			return nil, fault.New(fault.Value, "a limit must be from 1e-9 to 1e9 nats")
		}
		if one.limit != 0 {
			*one.kept = &one.limit
		}
	}
	if (b.PerWindow != 0) != (b.Window != 0) || b.PerWindow == 0 && b.ForEver == 0 {
		return nil, fault.New(fault.Value, "a wallet needs PerWindow with Window, or ForEver, or both")
	}
	if b.Window < 0 || b.Window%time.Second != 0 {
		return nil, fault.New(fault.Value, "a window must have whole seconds, at least one")
	}
	if seconds := int64(b.Window / time.Second); seconds > 0 {
		limits.WindowSeconds = &seconds
	}
	return limits, nil
}

func budgetOf(limits *state.Budget) (b Budget) {
	if limits.PerWindow != nil {
		b.PerWindow = *limits.PerWindow
	}
	if limits.ForEver != nil {
		b.ForEver = *limits.ForEver
	}
	if limits.WindowSeconds != nil {
		b.Window = time.Duration(*limits.WindowSeconds) * time.Second
	}
	return b
}

// Device returns the device that answers a survey. It charges the survey's claim if there is no enrolment.
//
// It returns [ErrWalletFull] if the claim does not fit; the other errors are those of [Open].
func (w *Wallet) Device(survey *Survey, options Options) (*Device, error) {
	return open(survey, w.store, options, w.clock, true)
}

// Spent returns the person's loss so far, and the wallet's charges. The errors are those of [Device.Report] for the store.
func (w *Wallet) Spent() (spent WalletSpent, err error) {
	err = transaction(w.store, func(kept *state.State) (*state.State, error) {
		if kept == nil {
			return nil, fault.New(fault.StoreCleared, "%s: the store is empty, but the wallet had been made", w.store)
		}
		spent.ChargedPerWindow, spent.ChargedForEver = kept.Charged(w.clock().UnixMilli())
		for _, one := range kept.Surveys {
			_, loss := one.Spent()
			spent.Spent += loss
		}
		return kept, nil
	})
	return spent, err
}
