// Package send sends a device's reports to a gateway, and decides when. A program with a client of its own sends by itself: see
// [device.Device.Waiting], [device.Device.Leaves] and [Read].
package send

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"ldpstream/device"
)

const longestPause = 300 * time.Second

// Attempt is the outcome of one attempt.
type Attempt struct {
	Accepted   int           // the number of reports that the gateway accepted: they are in its log
	Refused    int           // the number of reports that never count by this or a later attempt
	Waiting    int           // the number of reports that need another attempt, or whose moment has not come
	RetryAfter time.Duration // the shortest time to the next attempt
	Reasons    []string      // why reports wait or were refused, each reason once: such as "status 429" or "timeout"
}

// Sender sends the reports of one device. All attempts for a report carry its key, so that the report counts at most once.
type Sender struct {
	device *device.Device
	way    Way
	post   post
	mutex  sync.Mutex           // one attempt at a time
	next   map[string]time.Time // through a relay: the new moment of a report that was due, by key
}

// New prepares the sending of a device's reports. The token is the gateway's bearer token; empty if it needs none. Behind a relay,
// all devices must have the same token.
//
// It returns [device.ErrRelayRequired] if the survey requires a relay and the way has none, and [device.ErrValue] if a URL is
// malformed, or the survey requires no relay and the way has one.
func New(d *device.Device, way Way, token string) (*Sender, error) {
	post, err := way.prepared(d.Survey(), token, newClient())
	if err != nil {
		return nil, err
	}
	return &Sender{device: d, way: way, post: post, next: map[string]time.Time{}}, nil
}

// Attempt sends every waiting report once; through a relay, at most one report whose moment has come. It settles the reports whose
// answer is final. It ends early after a report without an answer in 15 seconds, and with the context's error.
//
// The other errors are those of [device.Device.Waiting].
func (s *Sender) Attempt(ctx context.Context) (Attempt, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.relayed() {
		return s.attemptOne(ctx)
	}
	reports, err := s.device.Waiting()
	if err != nil {
		return Attempt{}, err
	}
	// The order of arrival then shows no order of steps or attributes.
	rand.Shuffle(len(reports), func(i, j int) { reports[i], reports[j] = reports[j], reports[i] })
	waiting, answers := len(reports), []Answer{}
	for _, report := range reports {
		answer, err := s.send(ctx, report)
		if err != nil {
			return Attempt{}, err
		}
		if answer == nil || answer.Final {
			waiting--
		}
		if answer != nil {
			answers = append(answers, *answer)
			if answer.Reason == timedOut {
				break
			}
		}
	}
	return outcome(answers, waiting), nil
}

// Run calls [Sender.Attempt] until no report waits, with the pauses that a gateway expects. It may take minutes while the gateway is
// away: run it in a goroutine of its own. It ends early with the context's error: the reports stay in the store.
//
// The other errors are those of [device.Device.Waiting].
func (s *Sender) Run(ctx context.Context) error {
	for longest := time.Second; ; longest = min(2*longest, longestPause) {
		outcome, err := s.Attempt(ctx)
		if err != nil || outcome.Waiting == 0 {
			return err
		}
		pause := outcome.RetryAfter
		if !s.relayed() {
			pause += rand.N(longest)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// send sends a report, and returns the answer; nil if the report must not leave any more.
func (s *Sender) send(ctx context.Context, report device.Waiting) (*Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	_, local := s.way.(Local)
	if leaves, err := s.device.Leaves(report.Key, local); err != nil || !leaves {
		return nil, err
	}
	answer := s.post(ctx, report)
	if answer.Final {
		return &answer, s.device.Settle(report.Key)
	}
	return &answer, ctx.Err()
}

// attemptOne sends one report through a relay. Each other report that is due when the attempt ends gets a new random moment, so that
// the end of an attempt starts no other one.
func (s *Sender) attemptOne(ctx context.Context) (Attempt, error) {
	reports, err := s.device.Waiting()
	if err != nil {
		return Attempt{}, err
	}
	now, answers := time.Now(), []Answer{}
	isLater := func(one device.Waiting) bool { return s.moment(one).After(now) }
	if due := slices.DeleteFunc(slices.Clone(reports), isLater); len(due) > 0 {
		chosen := due[rand.N(len(due))]
		answer, err := s.send(ctx, chosen)
		if err != nil {
			return Attempt{}, err
		}
		if answer != nil {
			answers = append(answers, *answer)
		}
		if reports, err = s.device.Waiting(); err != nil { // also the reports that became due or were made meanwhile
			return Attempt{}, err
		}
		now = time.Now()
		for _, one := range reports {
			if isLater(one) {
				continue
			}
			next := now.Add(rand.N(s.within(one, now)))
			if one.Key == chosen.Key && answer != nil {
				next = next.Add(answer.RetryAfter)
			}
			s.next[one.Key] = next
		}
	}
	result, moved := outcome(answers, len(reports)), map[string]time.Time{}
	result.RetryAfter = 0
	for i, one := range reports {
		if next, has := s.next[one.Key]; has {
			moved[one.Key] = next
		}
		if wait := max(0, s.moment(one).Sub(now)); i == 0 || wait < result.RetryAfter {
			result.RetryAfter = wait
		}
	}
	s.next = moved
	return result, nil
}

func (s *Sender) relayed() bool { _, is := s.way.(*Relay); return is }

func (s *Sender) moment(report device.Waiting) time.Time {
	if next, has := s.next[report.Key]; has {
		return next
	}
	return report.Due
}

// within returns the range of a report's new moment: half of the time to the close of its step, from a second to a step; after the
// close a step.
func (s *Sender) within(report device.Waiting, now time.Time) time.Duration {
	survey := s.device.Survey()
	step := max(survey.Opens(report.Step+1).Sub(survey.Opens(report.Step)), time.Second)
	if left := survey.Closes(report.Step).Sub(now); left > 0 {
		return min(step, max(left/2, time.Second))
	}
	return step
}

func outcome(answers []Answer, waiting int) Attempt {
	all, asked := Attempt{Waiting: waiting}, []time.Duration{}
	for _, answer := range answers {
		switch {
		case answer.Counts:
			all.Accepted++
		case answer.Final:
			all.Refused++
		default:
			asked = append(asked, answer.RetryAfter)
		}
		if answer.Reason != "" && !slices.Contains(all.Reasons, answer.Reason) {
			all.Reasons = append(all.Reasons, answer.Reason)
		}
	}
	if len(asked) > 0 {
		all.RetryAfter = slices.Min(asked)
	}
	slices.Sort(all.Reasons)
	return all
}
