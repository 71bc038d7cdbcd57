// Command life writes the calls of many devices for `python -m devices.conformance`, or posts the reports of many devices for one step
// to a gateway.
package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"time"

	"ldpdevice"
)

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

var random io.Reader = rand.Reader

func main() {
	log.SetFlags(0)
	path := flag.String("survey", "", "file with the device survey")
	devices := flag.Int("devices", 5000, "number of devices")
	steps := flag.Int64("steps", 6, "number of steps")
	out := flag.String("calls", "", "file for the calls")
	seed := flag.String("seed", "", "seed of a generator for tests; none for the system's generator")
	gateway := flag.String("gateway", "", "URL of a gateway that gets one report of each device and attribute")
	flag.Parse()
	if *seed != "" {
		random = mathrand.NewChaCha8(sha256.Sum256([]byte(*seed)))
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		log.Fatal(err)
	}
	survey, err := ldpdevice.ParseSurvey(text)
	if err == nil && *gateway != "" {
		err = post(survey, *devices, *gateway)
	} else if err == nil {
		err = live(survey, *devices, *steps, *out)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// value returns the i-th value of an attribute as its index and as what the device gets; a set as the list of its indices.
func value(a *ldpdevice.Attribute, i int64) (any, any) {
	if a.Choices > 0 {
		code, indices, texts := i%(1<<len(a.Values)), []int{}, []any{}
		for v, text := range a.Values {
			if code>>v&1 == 1 && int64(len(indices)) < a.Choices {
				indices, texts = append(indices, v), append(texts, text)
			}
		}
		return indices, texts
	}
	i %= a.K()
	if first, second := a.Parts(); first != nil {
		_, one := value(first, i/second.K())
		_, other := value(second, i%second.K())
		return i, [2]any{one, other}
	}
	if a.Values != nil {
		return i, a.Values[i]
	}
	if a.Bins != nil {
		return i, a.Bins[i]
	}
	return i, i
}

// levelsOf chooses the levels of the number-th device; all levels occur about equally often.
func levelsOf(survey *ldpdevice.Survey, number int) map[string]string {
	levels, place := map[string]string{}, number
	for _, a := range survey.Canonical.Attribute {
		levels[a.Name] = a.Level[place%len(a.Level)].Name
		place /= len(a.Level)
	}
	return levels
}

// cohortOf chooses the cohort of the number-th device; all cohorts occur about equally often.
func cohortOf(survey *ldpdevice.Survey, number int) string {
	if survey.Canonical.Cohort == nil {
		return ""
	}
	return survey.Canonical.Cohort.Values[number%len(survey.Canonical.Cohort.Values)]
}

// enrol makes the number-th device.
func enrol(survey *ldpdevice.Survey, store ldpdevice.Store, number int) (*ldpdevice.Device, error) {
	device, err := ldpdevice.Enrol(survey, store, random, levelsOf(survey, number))
	if err == nil {
		err = setCohort(survey, device, number)
	}
	return device, err
}

// setCohort gives the number-th device its cohort.
func setCohort(survey *ldpdevice.Survey, device *ldpdevice.Device, number int) error {
	if survey.Canonical.Cohort == nil {
		return nil
	}
	return device.SetCohort(cohortOf(survey, number))
}

// live writes all calls. A device keeps its value for half of the steps, changes it, and returns to it at the last step.
// Each device has two runs, with fresh stores. Every second device repeats each call after a restart.
func live(survey *ldpdevice.Survey, devices int, steps int64, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(file)
	lines := json.NewEncoder(buffer)
	for run := range devices {
		number, store := run/2, &ldpdevice.Memory{}
		device, err := enrol(survey, store, number)
		for step := int64(0); err == nil && step < steps; step++ {
			for repeat := 0; repeat < 1+number%2; repeat++ {
				if repeat == 1 && err == nil {
					if device, err = ldpdevice.Open(survey, store, random); err == nil {
						err = setCohort(survey, device, number)
					}
				}
				for i := range survey.Canonical.Attribute {
					if err == nil {
						change := int64(0)
						if step >= steps/2 && step < steps-1 {
							change = 1
						}
						err = report(lines, device, &survey.Canonical.Attribute[i], i, int64(number)+change, step,
							call{Device: number, Level: levelsOf(survey, number)[survey.Canonical.Attribute[i].Name],
								Cohort: cohortOf(survey, number), Run: run % 2})
					}
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(buffer.Flush(), file.Close())
}

func report(lines *json.Encoder, device *ldpdevice.Device, a *ldpdevice.Attribute, i int, v, step int64, line call) error {
	index, given := value(a, v)
	sealed, err := device.Report(i, given, step)
	line.Attribute, line.Value, line.Step = a.Name, index, step
	if err == nil && sealed != nil {
		envelope := hex.EncodeToString(sealed.Envelope)
		line.Envelope, line.Key = &envelope, sealed.Key
	}
	return errors.Join(err, lines.Encode(line))
}

// post sends the present step's reports of all devices, all devices at once.
func post(survey *ldpdevice.Survey, devices int, gateway string) error {
	var wait sync.WaitGroup
	failures := make([]error, devices)
	for number := range devices {
		wait.Add(1)
		go func() {
			defer wait.Done()
			device, err := enrol(survey, &ldpdevice.Memory{}, number)
			for i := range survey.Canonical.Attribute {
				if err != nil {
					break
				}
				_, given := value(&survey.Canonical.Attribute[i], int64(number))
				var sealed *ldpdevice.Sealed
				if sealed, err = device.ReportNow(i, given, time.Now()); err == nil && sealed != nil {
					var accepted bool
					if accepted, err = ldpdevice.Post(gateway, "", sealed); err == nil && !accepted {
						err = fmt.Errorf("the gateway refuses a report of attribute %d", i)
					}
				}
			}
			failures[number] = err
		}()
	}
	wait.Wait()
	return errors.Join(failures...)
}
