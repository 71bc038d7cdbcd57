package ldpdevice

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// ErrWrongAddress means that the gateway's URL, the token or the request's head is wrong. The report stays.
var ErrWrongAddress = errors.New("the gateway's URL, the token or the request's head is wrong")

var client = &http.Client{
	Timeout:       30 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Post sends an envelope until the answer is final; it tells whether the gateway took it.
func Post(url, token string, sealed *Sealed) (accepted bool, err error) {
	for attempt := 0; ; attempt++ {
		request, err := http.NewRequest("POST", url+"/v1/reports", bytes.NewReader(sealed.Envelope))
		if err != nil {
			return false, err
		}
		request.Header.Set("Content-Type", "application/vnd.ldpstream.envelope")
		request.Header.Set("Idempotency-Key", sealed.Key)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		wait := min(300, float64(int64(1)<<min(attempt, 10))) * rand.Float64()
		if answer, err := client.Do(request); err == nil {
			answer.Body.Close()
			switch answer.StatusCode {
			case 202:
				return true, nil
			case 422:
				return false, nil
			case 400, 401, 403, 404, 405, 415, 501:
				return false, fmt.Errorf("%w: status %d", ErrWrongAddress, answer.StatusCode)
			}
			if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds >= 0 {
				wait += float64(seconds)
			}
		}
		time.Sleep(time.Duration(wait * float64(time.Second)))
	}
}
