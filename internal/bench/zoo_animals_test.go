package bench

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/milena-project/milena/internal/testkit"
)

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// animal is one way to misbehave; p, from 0 to 7, makes eight of each.
type animal struct {
	name   string
	tls    bool
	h2     bool
	script func(c *testkit.RawConn, p int)
}

// asked reads one request; false: there is none.
func asked(c *testkit.RawConn) bool {
	_, _, err := c.ReadRequest()
	return err == nil
}

// drip says s over and over, a byte at a time, until the peer has had enough.
func drip(c *testkit.RawConn, s string, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; c.Say(s[i%len(s):i%len(s)+1]) == nil; i++ {
		select {
		case <-tick.C:
		case <-c.Done:
			return
		}
	}
}

func answers(text func(p int) string) func(*testkit.RawConn, int) {
	return func(c *testkit.RawConn, p int) {
		if asked(c) {
			_ = c.Say(text(p))
		}
	}
}

// animals are 25 kinds; with eight of each they are 200.
var animals = []animal{
	{name: "endless body", script: func(c *testkit.RawConn, p int) {
		if asked(c) && c.Say("HTTP/1.1 200 OK\r\n\r\n") == nil {
			drip(c, "x", time.Duration(10+40*p)*time.Millisecond)
		}
	}},
	{name: "body without bound", script: func(c *testkit.RawConn, p int) {
		if asked(c) && c.Say("HTTP/1.1 500 No\r\n\r\n") == nil {
			for c.Say(strings.Repeat("x", 1<<(8+p))) == nil {
			}
		}
	}},
	{name: "slow headers", script: func(c *testkit.RawConn, p int) {
		if asked(c) {
			drip(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("y", 1<<16), time.Duration(20+40*p)*time.Millisecond)
		}
	}},
	{name: "never answers", script: func(c *testkit.RawConn, _ int) { asked(c); c.AwaitClose() }},
	{name: "never reads", script: func(c *testkit.RawConn, _ int) { <-c.Done }},
	{name: "resets", script: func(c *testkit.RawConn, _ int) { asked(c); c.Reset() }},
	{name: "resets amid the request", script: func(c *testkit.RawConn, p int) { _, _ = io.ReadFull(c, make([]byte, 50*(p+1))); c.Reset() }},
	{name: "closes", script: func(c *testkit.RawConn, _ int) { asked(c) }},
	{name: "half-closes", script: func(c *testkit.RawConn, _ int) {
		if asked(c) {
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			c.AwaitClose()
		}
	}},
	{name: "1xx flood", script: answers(func(p int) string {
		return strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", 500*(p+1)) + fine
	})},
	{name: "1xx for ever", script: func(c *testkit.RawConn, p int) {
		if asked(c) {
			drip(c, "HTTP/1.1 102 Processing\r\n\r\n", time.Duration(p+1)*10*time.Millisecond)
		}
	}},
	{name: "huge header", script: answers(func(p int) string {
		return "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", (p+1)*40<<10) + "\r\nContent-Length: 0\r\n\r\n"
	})},
	{name: "many headers", script: answers(func(p int) string {
		return "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: yyyyyyyyyyyyyyyy\r\n", 2000*(p+1)) + "\r\n"
	})},
	{name: "no HTTP", script: answers(func(p int) string { return strings.Repeat("\x00\xff garbage ", p+1) + "\n" })},
	{name: "odd status", script: answers(func(p int) string {
		return []string{"HTTP/1.1 600 X", "HTTP/1.1 099 X", "HTTP/1.1 abc", "HTTP/9.9 200 OK", "HTTP/1.1 101 X", "HTTP/1.1 20", "HTTP/1.1", "PRI * HTTP/2.0"}[p] + "\r\n\r\n"
	})},
	{name: "cut short", script: answers(func(p int) string { return fine[:4+4*p] })},
	{name: "speaks behind its answer", script: answers(func(p int) string { return fine + strings.Repeat("more", 1<<(2*p)) })},
	{name: "redirects", script: answers(func(p int) string {
		return fmt.Sprintf("HTTP/1.1 %d X\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", 301+p)
	})},
	{name: "refuses", script: answers(func(p int) string { return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", 400+p) })},
	{name: "is broken", script: answers(func(p int) string { return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", 500+p) })},
	{name: "asks for a pause", script: answers(func(p int) string {
		return fmt.Sprintf("HTTP/1.1 429 X\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n", 1<<p)
	})},
	{name: "TLS garbage", tls: true, script: func(c *testkit.RawConn, p int) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.Say("\x16\x03\x03\x00" + strings.Repeat("\x05", p+1))
	}},
	{name: "TLS that never ends", tls: true, script: func(c *testkit.RawConn, _ int) { c.AwaitClose() }},
	{name: "HTTP/2 resets", h2: true, script: func(c *testkit.RawConn, p int) {
		inH2(c, func(fr *http2.Framer, stream uint32) bool { return fr.WriteRSTStream(stream, http2.ErrCode(p)) == nil })
	}},
	{name: "HTTP/2 floods", h2: true, script: func(c *testkit.RawConn, p int) {
		inH2(c, func(fr *http2.Framer, _ uint32) bool {
			for range 200 * (p + 1) {
				if fr.WriteSettings() != nil || fr.WritePing(false, [8]byte{}) != nil {
					return false
				}
			}
			return fr.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil) == nil && false
		})
	}},
}

// inH2 calls act for each request, until it says that this is the end.
func inH2(c *testkit.RawConn, act func(fr *http2.Framer, stream uint32) bool) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(c.Conn, c)
	_ = fr.WriteSettings()
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.DataFrame:
			if f.StreamEnded() && !act(fr, f.StreamID) {
				return
			}
		}
	}
}

// url starts the p-th of an animal.
func (a *animal) url(tb testing.TB, p int, conf *tls.Config) string {
	script := func(c *testkit.RawConn) { a.script(c, p) }
	if a.h2 {
		return testkit.NewRawReceiver(tb, conf, script).URL("/")
	}
	url := testkit.NewRawReceiver(tb, nil, script).URL("/")
	if a.tls {
		return strings.Replace(url, "http:", "https:", 1)
	}
	return url
}
