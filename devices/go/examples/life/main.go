// Command life writes the calls of many devices for `python -m devices.conformance`, posts one report of each device to a gateway, or
// answers questions by histories of use:
//
//	go run ./examples/life SURVEY.json --calls CALLS.jsonl --seed 7
//	go run ./examples/life SURVEY.json --gateway http://127.0.0.1:8080 --devices 200
//	go run ./examples/life SURVEY.json --histories HISTORIES.jsonl --answers ANSWERS.jsonl
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"ldpstream/device"
	"ldpstream/device/send"
)

// plan is a survey with the parts of its canonical text that the values, levels and cohorts come from.
type plan struct {
	survey *device.Survey
	seed   string
	forget bool
	Cohort *struct{ Values []string }
	Asked  []attribute `json:"attribute"`
}

type attribute struct {
	Name    string
	Values  []string
	Size    int
	Bins    []float64
	Pair    []string
	Choices int
	Level   []struct{ Name string }
}

type call struct {
	Device    int     `json:"device"`
	Attribute string  `json:"attribute"`
	Value     any     `json:"value"`
	Step      int64   `json:"step"`
	Envelope  *string `json:"envelope"`
	Key       string  `json:"key,omitempty"`
	Level     string  `json:"level"`
	Cohort    string  `json:"cohort,omitempty"`
	Run       int     `json:"run"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("give the file of the device survey")
	}
	options := flag.NewFlagSet("life", flag.ExitOnError)
	devices := options.Int("devices", 5000, "number of devices")
	steps := options.Int64("steps", 6, "number of steps")
	out := options.String("calls", "", "file for the calls")
	seed := options.String("seed", "", "seed of a generator for tests; none for the system's generator")
	forget := options.Bool("forget", false, "a fault, as a control of the check: devices lose their store after each step")
	gateway := options.String("gateway", "", "URL of a gateway that gets one report of each device and attribute")
	histories := options.String("histories", "", "file with histories of use")
	answers := options.String("answers", "", "file for the values of the histories")
	options.Parse(os.Args[2:])
	p, err := read(os.Args[1], *seed)
	if err == nil {
		p.forget = *forget
	}
	if err == nil && *gateway != "" {
		err = p.post(*devices, *gateway)
	} else if err == nil && *histories != "" {
		err = p.answer(*histories, *answers)
	} else if err == nil {
		err = p.live(*devices, *steps, *out)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func read(path, seed string) (*plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &plan{seed: seed}
	if p.survey, err = device.ParseSurvey(text); err != nil {
		return nil, err
	}
	return p, json.Unmarshal([]byte(p.survey.Canonical()), p)
}

func (p *plan) random(name string) io.Reader {
	if p.seed == "" {
		return rand.Reader
	}
	return mathrand.NewChaCha8(sha256.Sum256([]byte(p.seed + " " + name)))
}

// k returns the number of values, without dummies.
func (p *plan) k(a attribute) int {
	switch {
	case a.Pair != nil:
		return p.k(p.named(a.Pair[0])) * p.k(p.named(a.Pair[1]))
	case a.Values != nil:
		return len(a.Values)
	case a.Bins != nil:
		return len(a.Bins) - 1
	}
	return a.Size
}

func (p *plan) named(name string) attribute {
	return p.Asked[slices.IndexFunc(p.Asked, func(a attribute) bool { return a.Name == name })]
}

// value returns the i-th value of an attribute as its index and as what the device gets; a set as the list of its indices.
func (p *plan) value(a attribute, i int) (index, given any) {
	if a.Choices > 0 {
		indices := []int{}
		for v := range a.Values {
			if i>>v&1 == 1 && len(indices) < a.Choices {
				indices = append(indices, v)
			}
		}
		return indices, indices
	}
	i %= p.k(a)
	switch {
	case a.Pair != nil:
		first, second := p.named(a.Pair[0]), p.named(a.Pair[1])
		_, one := p.value(first, i/p.k(second))
		_, other := p.value(second, i%p.k(second))
		return i, [2]any{one, other}
	case a.Values != nil:
		return i, a.Values[i]
	case a.Bins != nil:
		return i, a.Bins[i]
	}
	return i, i
}

// options chooses the levels and the cohort of the number-th device: all of them occur about equally often.
func (p *plan) options(number int, random io.Reader) device.Options {
	options := device.Options{Levels: map[string]string{}, Consent: device.ModeSimulated, Random: random}
	if p.Cohort != nil {
		options.Cohort = p.Cohort.Values[number%len(p.Cohort.Values)]
	}
	for _, a := range p.Asked {
		options.Levels[a.Name] = a.Level[number%len(a.Level)].Name
		number /= len(a.Level)
	}
	return options
}

// live writes all calls. A device keeps its value for half of the steps, changes it, and returns to it at the last step. Each device
// has two runs, with fresh stores. Every second device repeats each call after a restart.
func (p *plan) live(devices int, steps int64, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(file)
	lines := json.NewEncoder(buffer)
	for run := range devices {
		number, store := run/2, device.Memory()
		options := p.options(number, p.random(fmt.Sprint(run)))
		for step := range steps {
			if p.forget {
				store = device.Memory()
			}
			value := number
			if step >= steps/2 && step < steps-1 {
				value++
			}
			for range 1 + number%2 {
				opened, err := device.Open(p.survey, store, options)
				if err != nil {
					return err
				}
				for _, a := range p.Asked {
					line := call{Device: number, Attribute: a.Name, Step: step, Level: options.Levels[a.Name], Cohort: options.Cohort, Run: run % 2}
					if err := p.report(opened, a, value, &line); err != nil {
						return err
					}
					if err := lines.Encode(line); err != nil {
						return err
					}
				}
			}
		}
	}
	return errors.Join(buffer.Flush(), file.Close())
}

// report makes a call, and notes its outcome.
func (p *plan) report(opened *device.Device, a attribute, value int, line *call) error {
	index, given := p.value(a, value)
	line.Value = index
	envelope, err := opened.ReportAt(a.Name, given, line.Step)
	if err != nil || envelope == nil {
		return err
	}
	digits := hex.EncodeToString(envelope)
	line.Envelope = &digits
	waiting, err := opened.Waiting()
	for _, one := range waiting {
		if one.Attribute == a.Name && one.Step == line.Step {
			line.Key = one.Key
		}
	}
	return err
}

// post sends the present step's reports of all devices, all devices at once.
func (p *plan) post(devices int, gateway string) error {
	var wait sync.WaitGroup
	failures := make([]error, devices)
	for number := range devices {
		wait.Go(func() { failures[number] = p.postOne(number, gateway) })
	}
	wait.Wait()
	return errors.Join(failures...)
}

func (p *plan) postOne(number int, gateway string) error {
	opened, err := device.Open(p.survey, device.Memory(), p.options(number, p.random(fmt.Sprint(number))))
	if err != nil {
		return err
	}
	for _, a := range p.Asked {
		_, given := p.value(a, number)
		if _, err := opened.Report(a.Name, given); err != nil {
			return err
		}
	}
	sender, err := send.New(opened, send.Direct(gateway), "")
	if err != nil {
		return err
	}
	return sender.Run(context.Background())
}

// line is a call of an activity log, or a question for the values of a step.
type line struct {
	Device  string               `json:"device"`
	Ms      *int64               `json:"ms,omitempty"`
	Event   string               `json:"event,omitempty"`
	Seconds *float64             `json:"seconds,omitempty"`
	Step    *int64               `json:"step,omitempty"`
	Values  *map[string]*float64 `json:"values,omitempty"` // null for an infinite one
}

// answer makes the calls of each history on a log of its own, and writes all lines with the values of the questions.
func (p *plan) answer(histories, path string) error {
	text, err := os.ReadFile(histories)
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	var used *device.Activity
	var now time.Time
	lines, out, last := json.NewDecoder(bytes.NewReader(text)), json.NewEncoder(file), ""
	for lines.More() {
		var one line
		if err := lines.Decode(&one); err != nil {
			return err
		}
		if used == nil || one.Device != last {
			last = one.Device
			if used, err = device.OpenActivityWith(device.Memory(), func() time.Time { return now }); err != nil {
				return err
			}
		}
		if one.Ms != nil {
			now = time.UnixMilli(*one.Ms)
		}
		if err := errors.Join(one.call(used, p.survey), out.Encode(one)); err != nil {
			return err
		}
	}
	return file.Close()
}

// call makes the call, or answers the question.
func (one *line) call(used *device.Activity, survey *device.Survey) error {
	switch {
	case one.Step != nil:
		values, err := used.Values(survey, *one.Step)
		numbers := map[string]*float64{}
		for name, value := range values {
			if numbers[name] = &value; math.IsInf(value, 0) {
				numbers[name] = nil // null
			}
		}
		one.Values = &numbers
		return err
	case one.Event == "":
		return used.Seen()
	case one.Seconds == nil:
		return used.Used(one.Event)
	}
	return used.Took(one.Event, time.Duration(math.Round(*one.Seconds*1e9)))
}
