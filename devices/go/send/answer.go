package send

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	problem = "urn:ldpstream:problem:"
	day     = 24 * time.Hour
)

// Answer is what a gateway's answer says about one report.
type Answer struct {
	// Final tells that the answer is the gateway's own, and no later attempt changes it: settle the report.
	Final bool
	// Counts tells whether the report counts, if the answer is final.
	Counts bool
	// RetryAfter is the shortest time to the next attempt.
	RetryAfter time.Duration
	// Reason says why the report does not count, such as "step too old (422)", or why there is no answer. It is empty if it counts.
	Reason string
}

// Read reads an answer: its HTTP status, its header with Retry-After and Date, and its body. Programs that send with a client of
// their own use it.
//
// A proxy can answer 202 or 422, too: these are final only with the gateway's own body.
func Read(status int, header http.Header, body []byte) Answer {
	var document struct {
		Accepted *float64 `json:"accepted"`
		Type     any      `json:"type"`
	}
	read := json.Unmarshal(body, &document) == nil
	answer := Answer{RetryAfter: retryAfter(header), Reason: fmt.Sprintf("status %d", status)}
	kind, _ := document.Type.(string)
	if name, own := strings.CutPrefix(kind, problem); own {
		answer.Reason = fmt.Sprintf("%s (%d)", strings.ReplaceAll(name, "-", " "), status)
		answer.Final = status == http.StatusUnprocessableEntity // the only status after which no later attempt counts
	}
	if status == http.StatusAccepted && read && document.Accepted != nil {
		answer = Answer{Final: true, Counts: true}
	}
	return answer
}

// retryAfter returns the wait that an answer asks for, at most a day; 0 if it is not understood.
func retryAfter(header http.Header) time.Duration {
	told := header.Get("Retry-After")
	if told != "" && !strings.ContainsFunc(told, func(r rune) bool { return r < '0' || r > '9' }) {
		seconds, err := strconv.ParseInt(told, 10, 32)
		if err != nil {
			return day
		}
		return min(time.Duration(seconds)*time.Second, day)
	}
	now := time.Now()
	if date := header.Get("Date"); date != "" {
		var err error
		if now, err = http.ParseTime(date); err != nil {
			return 0
		}
	}
	until, err := http.ParseTime(told)
	if err != nil {
		return 0
	}
	return max(0, min(until.Sub(now), day))
}
