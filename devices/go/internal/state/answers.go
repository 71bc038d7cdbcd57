package state

import (
	"maps"
	"slices"
)

// mostDropped steps are remembered. If there are more, the earliest is forgotten, with all steps before it.
const mostDropped = 10_000

// Answers has a device's choices and reports of one attribute.
type Answers struct {
	Level     int              `json:"level"`
	Silent    bool             `json:"silent"` // the device does not answer this attribute
	Fake      *int64           `json:"fake"`
	Function  int64            `json:"function"`
	Phase     int64            `json:"phase"`
	Loss      Nats             `json:"loss"` // the bound of the loss of one report
	Reports   int64            `json:"reports"`
	Memos     map[int64]Memo   `json:"memos"`
	Kept      map[int64]Sealed `json:"kept"`    // by step
	Dropped   []int64          `json:"dropped"` // steps, in ascending order
	Forgotten *int64           `json:"forgotten"`
}

// Memo is a memo, with the number of its reports.
type Memo struct {
	Row     Hex   `json:"row"`
	Reports int64 `json:"reports"`
}

// Sealed is a kept envelope.
type Sealed struct {
	Envelope Hex     `json:"envelope"`
	Key      *string `json:"key"` // nil after the envelope was settled
	DueMs    int64   `json:"due_ms"`
}

// NewAnswers returns the answers of a new device, which reports no step before the first one.
func NewAnswers(loss float64, first int64) *Answers {
	a := &Answers{Loss: Nats(loss), Memos: map[int64]Memo{}, Kept: map[int64]Sealed{}, Dropped: []int64{}}
	if first > 0 {
		a.forget(first - 1)
	}
	return a
}

// IsOver tells whether a step can no longer be reported, since its envelope was dropped or the step is too early.
func (a *Answers) IsOver(step int64) bool {
	_, dropped := slices.BinarySearch(a.Dropped, step)
	return dropped || a.Forgotten != nil && step <= *a.Forgotten
}

// Steps returns the steps of the kept envelopes in order: of those that are settled, or of the others.
func (a *Answers) Steps(settled bool) (steps []int64) {
	for _, step := range slices.Sorted(maps.Keys(a.Kept)) {
		if (a.Kept[step].Key == nil) == settled {
			steps = append(steps, step)
		}
	}
	return steps
}

// Keep counts and keeps a new envelope. Above the largest number of unsettled ones it drops the one farthest from the new step.
func (a *Answers) Keep(step int64, sealed Sealed, most int64) {
	a.Reports++
	a.Kept[step] = sealed
	if waiting := a.Steps(false); int64(len(waiting)) > most {
		farthest := waiting[0]
		for _, one := range waiting {
			if apart(one, step) > apart(farthest, step) {
				farthest = one
			}
		}
		a.drop(farthest)
	}
	if len(a.Dropped) > mostDropped {
		a.forget(a.Dropped[0])
	}
}

// Settle marks an envelope as settled, and forgets what is earlier than the latest settled ones.
func (a *Answers) Settle(step, latest int64) {
	sealed := a.Kept[step]
	sealed.Key = nil
	a.Kept[step] = sealed
	settled := a.Steps(true)
	if int64(len(settled)) < latest {
		return
	}
	first := settled[int64(len(settled))-latest]
	maps.DeleteFunc(a.Kept, func(step int64, _ Sealed) bool { return step < first })
	if first > 0 {
		a.forget(first - 1)
	}
}

// Withdraw drops what the attribute's consent allowed to keep: the envelopes and the memos. It remembers the reported steps.
func (a *Answers) Withdraw() {
	a.Memos = map[int64]Memo{}
	for step := range maps.Clone(a.Kept) {
		a.drop(step)
	}
}

func (a *Answers) drop(step int64) {
	delete(a.Kept, step)
	place, _ := slices.BinarySearch(a.Dropped, step)
	a.Dropped = slices.Insert(a.Dropped, place, step)
}

// forget remembers that no step up to this one is to be reported.
func (a *Answers) forget(last int64) {
	if a.Forgotten == nil || *a.Forgotten < last {
		a.Forgotten = &last
	}
	a.Dropped = slices.DeleteFunc(a.Dropped, func(step int64) bool { return step <= last })
}

func (a *Answers) lastStep() int64 {
	last := int64(-1)
	for step := range a.Kept {
		last = max(last, step)
	}
	return max(last, slices.Max(append(slices.Clone(a.Dropped), -1)))
}

func apart(x, y int64) int64 { return max(x-y, y-x) }
