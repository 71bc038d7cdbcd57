// Command count is a program that counts its own use:
//
//	count SURVEY.json FOLDER ask             shows the question; then `yes` or `no` keeps the answer
//	count SURVEY.json FOLDER run GATEWAY     records the use with consent, and sends what waits; `run local` sends nothing
//	count SURVEY.json FOLDER preview         shows what would leave now, after a use
//	count SURVEY.json FOLDER journal         shows what left
//
// The survey has attributes with a recipe only, so that the device computes all values from the log of use.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"ldpstream/device"
	"ldpstream/device/send"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := count(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(2)
	}
}

func count(ctx context.Context, arguments []string) error {
	if len(arguments) < 3 {
		return fmt.Errorf("%w: give SURVEY.json FOLDER COMMAND", device.ErrValue)
	}
	text, err := os.ReadFile(arguments[0])
	if err != nil {
		return err
	}
	survey, err := device.ParseSurvey(text)
	if err != nil {
		return err
	}
	person, err := device.Open(survey, device.File(filepath.Join(arguments[1], "answers.device")), device.Options{})
	if err != nil {
		return err
	}
	activity, err := device.OpenActivity(device.File(filepath.Join(arguments[1], "usage.activity")))
	if err != nil {
		return err
	}
	switch command := arguments[2]; command {
	case "ask":
		fmt.Println(person.Question())
		return nil
	case "yes":
		return person.GiveConsent()
	case "no":
		if err := person.WithdrawConsent(); err != nil {
			return err
		}
		return activity.Forget()
	case "run":
		if len(arguments) < 4 {
			return fmt.Errorf("%w: run needs the gateway's URL, or local", device.ErrValue)
		}
		return run(ctx, person, activity, arguments[3])
	case "preview":
		shown, err := activity.Preview(person, nil)
		for _, one := range shown {
			fmt.Println(one)
		}
		if len(shown) == 0 && err == nil {
			fmt.Println("Nothing would leave: the log has no use of this step.")
		}
		return err
	case "journal":
		return journal(person)
	default:
		return fmt.Errorf("%w: the command must be ask, yes, no, run, preview or journal, got %q", device.ErrValue, command)
	}
}

// run does the program's work, which here is nothing but to count itself.
func run(ctx context.Context, person *device.Device, activity *device.Activity, gateway string) error {
	consent, err := person.Consent()
	if err != nil {
		return err
	}
	if consent == device.ConsentGiven {
		if err := activity.Seen(); err != nil {
			return err
		}
	}
	if _, err := activity.Answer(person, nil); err != nil {
		return err
	}
	var way send.Way = send.Direct(gateway)
	if gateway == "local" {
		way = send.Local{}
	}
	sender, err := send.New(person, way, "")
	if err != nil {
		return err
	}
	return sender.Run(ctx)
}

func journal(person *device.Device) error {
	all, err := person.Journal()
	for _, left := range all {
		place := "left"
		if left.Local {
			place = "stayed here"
		}
		fmt.Printf("%s of step %d: %d bytes %s\n", left.Attribute, left.Step, len(left.Envelope), place)
	}
	return err
}
