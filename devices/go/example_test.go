package device_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"ldpstream/device"
	"ldpstream/device/send"
)

// The output of `ldpstream canonical testdata/theme.toml`.
//
//go:embed testdata/theme.json
var theme []byte

// A program asks the person, reports an answer, and sends it. Local sends nothing: give send.Direct the gateway's URL.
func Example() {
	survey, err := device.ParseSurvey(theme)
	if err != nil {
		log.Fatal(err)
	}
	d, err := device.Open(survey, device.Memory(), device.Options{MaxEps: 2}) // device.File("answers.device") for a real one
	if err != nil {
		log.Fatal(err)
	}
	if toAsk, err := d.ToAsk(); err == nil && len(toAsk) > 0 {
		title, _, _ := strings.Cut(d.Question(), "\n") // show all of it, and ask
		fmt.Println(title)
		if err := d.GiveConsent(); err != nil { // before it, the device draws, keeps and sends nothing
			log.Fatal(err)
		}
	}
	if _, err := d.Answer(device.Values{"theme": "dark"}); err != nil {
		log.Fatal(err)
	}
	sender, err := send.New(d, send.Local{}, "")
	if err != nil {
		log.Fatal(err)
	}
	if err := sender.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	journal, err := d.Journal()
	fmt.Println(len(journal), "report:", journal[0].Attribute, err)
	// Output:
	// Which theme do you use?
	// 1 report: theme <nil>
}

func ExampleDevice_PreviewAt() {
	survey, err := device.ParseSurvey(theme)
	if err != nil {
		log.Fatal(err)
	}
	d, err := device.Open(survey, device.Memory(), device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	shown, err := d.PreviewAt(device.Values{"theme": "dark"}, 7)
	fmt.Println(shown[0].Attribute, shown[0].Step, shown[0].Example, shown[0].Silence, err)
	// Output: theme 7 true consent unknown <nil>
}

func ExampleWallet() {
	survey, err := device.ParseSurvey(theme)
	if err != nil {
		log.Fatal(err)
	}
	wallet, err := device.OpenWallet(device.Memory(), device.Budget{PerWindow: 0.5, Window: 24 * time.Hour}, false)
	if err != nil {
		log.Fatal(err)
	}
	_, err = wallet.Device(survey, device.Options{Consent: device.ModeGiven})
	fmt.Println(errors.Is(err, device.ErrWalletFull)) // the survey may lose more in a day
	// Output: true
}

func ExampleActivity() {
	activity, err := device.OpenActivity(device.Memory()) // device.File("usage.activity") for a real one
	if err != nil {
		log.Fatal(err)
	}
	if err := activity.Seen(); err != nil {
		log.Fatal(err)
	}
	err = activity.Took("no spaces", time.Second)
	fmt.Println(err)
	// Output: ValueError: an event has 1 to 64 letters, digits, dots, underscores or hyphens
}
