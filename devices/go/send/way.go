package send

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ldpstream/device"
)

const (
	answerTime      = 15 * time.Second // longer than the gateway's own time limits
	mostAnswerBytes = 1 << 20
	envelopeType    = "application/vnd.ldpstream.envelope"
	reportsPath     = "/v1/reports"
	timedOut        = "timeout"
)

// Way is where the reports go: see [Direct], [Local] and [NewRelay].
type Way interface {
	// prepared checks the way for a survey, and returns what posts a report.
	prepared(survey *device.Survey, token string, client *http.Client) (post, error)
}

// post sends a report once.
type post func(ctx context.Context, report device.Waiting) Answer

// Direct is the way straight to the gateway, which sees the device's address: http[s]://host[:port][/path], without /v1/reports.
type Direct string

func (d Direct) prepared(survey *device.Survey, token string, client *http.Client) (post, error) {
	if _, err := readURL(string(d)); err != nil {
		return nil, err
	}
	if survey.NeedsRelay() {
		return nil, fmt.Errorf("%w: survey %q requires a relay", device.ErrRelayRequired, survey.Name())
	}
	target := strings.TrimRight(string(d), "/") + reportsPath
	return func(ctx context.Context, report device.Waiting) Answer {
		header := http.Header{"Content-Type": {envelopeType}, "Idempotency-Key": {report.Key}}
		if token != "" {
			header.Set("Authorization", "Bearer "+token)
		}
		status, told, body, reason := exchanged(ctx, client, target, header, report.Envelope)
		if reason != "" {
			return Answer{Reason: reason}
		}
		return Read(status, told, body)
	}, nil
}

// Local is no way: nothing is sent, and each report counts as accepted. It is for trying a program.
type Local struct{}

func (Local) prepared(*device.Survey, string, *http.Client) (post, error) {
	return func(context.Context, device.Waiting) Answer { return Answer{Final: true, Counts: true} }, nil
}

// Relay is a relay, the gateway behind it, and the gateway's key. The relay sees who sends, and the gateway sees what.
type Relay struct {
	url               string
	scheme, authority string
	key               *gatewayKey
}

// NewRelay reads the gateway's key configuration in base64, as `ldpstream relay-key` prints it. Put it into the application's
// package, so that all devices have the same key.
//
// It returns [device.ErrValue] if a URL or the configuration is malformed.
func NewRelay(relay, gateway, keys string) (*Relay, error) {
	if _, err := readURL(relay); err != nil {
		return nil, err
	}
	read, err := readURL(gateway)
	if err != nil {
		return nil, err
	}
	if read.Path != "" && read.Path != "/" {
		return nil, fmt.Errorf("%w: a gateway behind a relay must have a URL without a path", device.ErrValue)
	}
	document, err := base64.StdEncoding.DecodeString(keys)
	if err != nil {
		return nil, fmt.Errorf("%w: keys must be a key configuration in base64", device.ErrValue)
	}
	key, err := firstKey(document)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrValue, err)
	}
	return &Relay{relay, read.Scheme, read.Host, key}, nil
}

func (r *Relay) prepared(survey *device.Survey, token string, client *http.Client) (post, error) {
	if !survey.NeedsRelay() {
		return nil, fmt.Errorf("%w: survey %q requires no relay, but the sender has one", device.ErrValue, survey.Name())
	}
	largest := survey.LargestEnvelope()
	return func(ctx context.Context, report device.Waiting) Answer {
		capsule, keys, err := r.key.seal(r.message(report, token, largest))
		if err != nil {
			return Answer{Reason: err.Error()}
		}
		header := http.Header{"Content-Type": {"message/ohttp-req"}}
		status, _, body, reason := exchanged(ctx, client, r.url, header, capsule)
		switch {
		case reason != "":
			return Answer{Reason: reason}
		case status != http.StatusOK:
			return Answer{Reason: fmt.Sprintf("status %d of the relay", status)}
		}
		opened, err := keys.open(body)
		if err != nil {
			return Answer{Reason: errForeign.Error()}
		}
		status, told, content, ok := binaryResponse(opened)
		if !ok {
			return Answer{Reason: errForeign.Error()}
		}
		return Read(status, told, content)
	}, nil
}

// message is the binary request with a report, with zeros up to the size of the survey's largest request.
func (r *Relay) message(report device.Waiting, token string, largest int) []byte {
	fields := [][2]string{{"content-type", envelopeType}, {"idempotency-key", report.Key}}
	if token != "" {
		fields = append(fields, [2]string{"authorization", "Bearer " + token})
	}
	request := func(envelope []byte) []byte {
		return binaryRequest(r.scheme, r.authority, reportsPath, fields, envelope)
	}
	message := request(report.Envelope)
	return append(message, make([]byte, len(request(make([]byte, largest)))-len(message))...)
}

// exchanged returns the status, header and body of an answer; or why there is none.
func exchanged(ctx context.Context, client *http.Client, target string, header http.Header, body []byte) (
	status int, told http.Header, content []byte, reason string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, "the URL cannot be used"
	}
	request.Header = header
	request.Header.Set("User-Agent", "ldpstream") // the same for all devices
	answer, err := client.Do(request)
	if err == nil {
		defer answer.Body.Close()
		content, err = io.ReadAll(io.LimitReader(answer.Body, mostAnswerBytes))
	}
	if err != nil {
		return 0, nil, nil, reasonOf(err)
	}
	return answer.StatusCode, answer.Header, content, ""
}

// reasonOf names an error without the URL.
func reasonOf(err error) string {
	var timeout net.Error
	var named *url.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return timedOut
	}
	if errors.As(err, &named) {
		err = named.Err
	}
	return err.Error()
}

func newClient() *http.Client {
	return &http.Client{
		Timeout:       answerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:              http.ProxyFromEnvironment,
			DisableKeepAlives:  true, // one connection would join the reports of a device
			DisableCompression: true,
		},
	}
}

func readURL(text string) (*url.URL, error) {
	plain := !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("@?#", r) })
	read, err := url.Parse(text)
	if err != nil || !plain || read.Hostname() == "" || read.Scheme != "http" && read.Scheme != "https" {
		shown := text[strings.LastIndex(text, "@")+1:]
		return nil, fmt.Errorf("%w: a URL must be http[s]://host[:port][/path] without a user name, got %q", device.ErrValue, shown)
	}
	return read, nil
}
