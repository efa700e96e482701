package flowtest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

const ok200 = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// says is the script of a receiver that answers every request with one text.
func says(text string) func(*caller) {
	return func(c *caller) {
		for c.request() {
			if c.Say(text) != nil {
				return
			}
		}
	}
}

// once is the script of a receiver that answers one request and ends its side.
func once(text string) func(*caller) {
	return func(c *caller) {
		if c.request() {
			_ = c.Say(text)
		}
	}
}

func statusLine(code int, headers ...string) string {
	text := fmt.Sprintf("HTTP/1.1 %d Whatever\r\nContent-Length: 0\r\n", code)
	for _, h := range headers {
		text += h + "\r\n"
	}
	return text + "\r\n"
}

// presets are those of the outcome table, with one delay of two hours where the
// preset's own would be over before the test is.
var presets = map[string]schemas.Retry{
	"standard":    {},
	"proofledger": {Preset: "proofledger"},
	"fast":        {Preset: "fast", Schedule: []schemas.Duration{schemas.Duration(2 * time.Hour)}},
}

// answers are statuses, under each preset: the outcome table of the design.
func (h *hostile) answers(trap string) (cases []receiverCase) {
	add := func(preset string, code int, rejectedBy, name string, headers ...string) {
		c := receiverCase{name: name + "-" + preset, script: says(statusLine(code, headers...)), retry: presets[preset], status: code}
		if len(headers) > 0 {
			c.says = headers[0]
		}
		if strings.Contains(rejectedBy, preset) {
			c.outcome, c.reason = schemas.OutcomeDead, schemas.ReasonRejected
		}
		cases = append(cases, c)
	}
	for preset := range presets {
		for _, code := range []int{400, 401, 403} {
			add(preset, code, "proofledger fast", "status-"+strconv.Itoa(code))
		}
		for _, code := range []int{404, 405, 413, 422} {
			add(preset, code, "proofledger", "status-"+strconv.Itoa(code))
		}
		for _, code := range []int{408, 425, 429, 500, 502, 503, 504, 599} {
			add(preset, code, "", "status-"+strconv.Itoa(code))
		}
		for _, code := range []int{302, 303, 307, 308} {
			add(preset, code, "proofledger", "redirect-"+strconv.Itoa(code), "Location: "+trap)
		}
		for _, code := range []int{300, 304} {
			add(preset, code, "proofledger", "nowhere-"+strconv.Itoa(code))
		}
	}
	for _, code := range []int{402, 406, 409, 411, 414, 415, 418, 431, 451, 499} {
		add("proofledger", code, "proofledger", "status-"+strconv.Itoa(code))
	}
	for _, code := range []int{501, 505, 520} {
		add("proofledger", code, "", "status-"+strconv.Itoa(code))
	}
	for _, code := range []int{301, 302, 303, 305, 307, 308, 399} {
		add("standard", code, "", "inside-"+strconv.Itoa(code), "Location: http://169.254.169.254/latest/meta-data/")
		add("proofledger", code, "proofledger", "missing-"+strconv.Itoa(code))
	}
	for _, code := range []int{200, 201, 202, 204, 206, 226, 299} {
		text := statusLine(code)
		if code == http.StatusNoContent {
			text = "HTTP/1.1 204 No Content\r\n\r\n"
		}
		cases = append(cases, receiverCase{name: "status-" + strconv.Itoa(code), script: says(text), outcome: schemas.OutcomeDelivered, status: code})
	}
	return append(cases, append(h.bodies(), receiverCase{
		name: "status-410", script: says(statusLine(http.StatusGone)),
		outcome: schemas.OutcomeDead, reason: schemas.ReasonGone, status: http.StatusGone,
	})...)
}

// bodies are what an answer can carry behind a status that has decided already.
func (h *hostile) bodies() []receiverCase {
	var bomb bytes.Buffer
	z, _ := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	for zeros := make([]byte, 1<<20); bomb.Len() < 64<<10; {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	endless := func(status string) func(*caller) {
		return func(c *caller) {
			if c.request() && c.Say("HTTP/1.1 "+status+"\r\n\r\n") == nil {
				c.trickle("x", 50*time.Millisecond)
			}
		}
	}
	flood := func(c *caller) {
		if c.request() && c.Say("HTTP/1.1 200 OK\r\n\r\n") == nil {
			for c.Say(strings.Repeat("x", 64<<10)) == nil {
			}
		}
	}
	ill := "\x1b[2J\x00\xff\xfe evil \u009b31m"
	return []receiverCase{
		{name: "body-never-ends", script: endless("200 OK"), outcome: schemas.OutcomeDelivered, status: 200, drops: true},
		{name: "body-never-ends-after-500", script: endless("500 No"), status: 500, says: "xx", drops: true},
		{name: "body-never-begins", script: func(c *caller) {
			if c.request() && c.Say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n") == nil {
				c.AwaitClose()
			}
		}, outcome: schemas.OutcomeDelivered, status: 200, drops: true},
		{name: "body-without-bound", script: flood, outcome: schemas.OutcomeDelivered, status: 200, drops: true},
		{name: "gzip-bomb", script: once("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(bomb.Len()) +
			"\r\n\r\n" + bomb.String()), outcome: schemas.OutcomeDelivered, status: 200},
		{name: "gzip-bomb-after-400", script: once("HTTP/1.1 400 No\r\nContent-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(bomb.Len()) +
			"\r\n\r\n" + bomb.String()), status: 400, says: "Content-Encoding: gzip"},
		{name: "gzip-that-is-none", script: once("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
			outcome: schemas.OutcomeDelivered, status: 200},
		{name: "chunks-that-break", script: once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"),
			outcome: schemas.OutcomeDelivered, status: 200},
		{name: "chunks-of-nonsense", script: once("HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n"), status: 503},
		{name: "shorter-than-promised", script: once("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"),
			outcome: schemas.OutcomeDelivered, status: 200},
		{name: "escapes-in-the-body", script: once("HTTP/1.1 500 No\r\nContent-Length: " + strconv.Itoa(len(ill)) + "\r\n\r\n" + ill),
			status: 500, says: " evil "},
	}
}

// retryAfters are what a receiver may ask for, and what of it counts.
func (h *hostile) retryAfters() (cases []receiverCase) {
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	usual := [2]time.Duration{time.Minute, 66 * time.Second}
	for i, c := range []struct {
		headers []string
		next    [2]time.Duration
	}{
		{[]string{"120"}, [2]time.Duration{2 * time.Minute, 132 * time.Second}},
		{[]string{" 120 "}, [2]time.Duration{2 * time.Minute, 132 * time.Second}},
		{[]string{at(time.Hour)}, [2]time.Duration{59 * time.Minute, 66 * time.Minute}}, // the table needs a moment to begin
		{[]string{at(-time.Hour)}, usual},
		{[]string{"1"}, usual}, // earlier than the schedule
		{[]string{"0"}, usual},
		{[]string{"-5"}, usual},
		{[]string{"abc"}, usual},
		{[]string{"1.5"}, usual},
		{[]string{"120s"}, usual},
		{[]string{"0x78"}, usual},
		{[]string{""}, usual},
		{[]string{"120", "300"}, [2]time.Duration{2 * time.Minute, 132 * time.Second}},
		{[]string{"99999999999999999999999"}, usual},
		{[]string{"31536000"}, [2]time.Duration{24 * time.Hour, 27 * time.Hour}},
	} {
		var headers []string
		for _, v := range c.headers {
			headers = append(headers, "Retry-After: "+v)
		}
		for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError} {
			cases = append(cases, receiverCase{name: fmt.Sprintf("retry-after-%d-%d", i, code),
				script: says(statusLine(code, headers...)), status: code, next: c.next})
		}
	}
	return cases
}
