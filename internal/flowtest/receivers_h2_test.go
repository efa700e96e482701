package flowtest

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// h2 is an HTTP/2 connection in the hands of a script.
type h2 struct {
	*caller
	*http2.Framer

	stream uint32 // of the request that was read last
	nth    int    // the how many-th request it is, over all connections
}

// speaksH2 runs script for each request that was read whole.
func speaksH2(script func(*h2), settings ...http2.Setting) func(*caller) {
	return func(c *caller) {
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		s := &h2{caller: c, Framer: http2.NewFramer(c.Conn, c)}
		s.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = s.WriteSettings(settings...)
		requests := make(map[uint32]*post)
		for {
			f, err := s.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					_ = s.WriteSettingsAck()
				}
			case *http2.MetaHeadersFrame:
				p := &post{header: http.Header{}}
				for _, field := range f.Fields {
					if field.Name == ":method" {
						p.method = field.Value
					}
					p.header.Add(field.Name, field.Value)
				}
				requests[f.StreamID] = p
				s.whole(script, f.StreamID, p, f.StreamEnded())
			case *http2.DataFrame:
				if p := requests[f.StreamID]; p != nil {
					p.body = append(p.body, f.Data()...)
					s.whole(script, f.StreamID, p, f.StreamEnded())
				}
			}
		}
	}
}

func (s *h2) whole(script func(*h2), stream uint32, p *post, ended bool) {
	if !ended {
		return
	}
	s.log.add(*p)
	s.stream, s.nth = stream, len(s.log.list())
	script(s)
}

// head answers the request with a status; end: and with nothing more.
func (s *h2) head(status string, end bool, fields ...hpack.HeaderField) error {
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	for _, f := range fields {
		_ = enc.WriteField(f)
	}
	return s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.stream, BlockFragment: []byte(block.String()), EndHeaders: true, EndStream: end})
}

// streams are what an HTTP/2 peer can do. A POST that it may have processed is not
// sent again; one that it says it has not processed is, within the same attempt.
func (h *hostile) streams() (cases []receiverCase) {
	conf := &tls.Config{NextProtos: []string{"h2"}, Certificates: []tls.Certificate{h.ca.Issue(h.t, testkit.CertSpec{Hosts: []string{receiverHost}}).TLS}}
	reset := func(code http2.ErrCode) func(*h2) {
		return func(s *h2) { _ = s.WriteRSTStream(s.stream, code) }
	}
	answer := func(s *h2) { _ = s.head("200", true) }
	unlessFirst := func(first func(*h2)) func(*h2) {
		return func(s *h2) {
			if s.nth == 1 {
				first(s)
				return
			}
			answer(s)
		}
	}
	good := receiverCase{outcome: schemas.OutcomeDelivered, status: 200}
	for _, c := range []struct {
		name   string
		script func(*h2)
		want   receiverCase
	}{
		{"answers", answer, good},
		{"redirects", func(s *h2) {
			_ = s.head("307", true, hpack.HeaderField{Name: "location", Value: "http://169.254.169.254/"})
		}, receiverCase{status: 307, says: "Location: http://169.254.169.254/"}},
		{"rst-protocol-error", reset(http2.ErrCodeProtocol), receiverCase{class: schemas.ClassProtocol}},
		{"rst-cancel", reset(http2.ErrCodeCancel), receiverCase{class: schemas.ClassReset}},
		{"rst-no-error", reset(http2.ErrCodeNo), receiverCase{class: schemas.ClassReset}},
		{"rst-internal-error", reset(http2.ErrCodeInternal), receiverCase{class: schemas.ClassReset}},
		{"rst-enhance-your-calm", reset(http2.ErrCodeEnhanceYourCalm), receiverCase{class: schemas.ClassReset}},
		{"rst-refused-once", unlessFirst(reset(http2.ErrCodeRefusedStream)), receiverCase{outcome: schemas.OutcomeDelivered, status: 200, posts: 2}},
		{"goaway-over-the-request", func(s *h2) { _ = s.WriteGoAway(s.stream, http2.ErrCodeNo, nil); _ = s.Conn.Close() }, receiverCase{class: schemas.ClassReset}},
		{"goaway-before-the-request", unlessFirst(func(s *h2) { _ = s.WriteGoAway(0, http2.ErrCodeNo, nil) }),
			receiverCase{outcome: schemas.OutcomeDelivered, status: 200, posts: 2}},
		{"goaway-calm", func(s *h2) {
			_ = s.WriteGoAway(s.stream, http2.ErrCodeEnhanceYourCalm, []byte("calm"))
			_ = s.Conn.Close()
		},
			receiverCase{class: schemas.ClassReset}},
		{"closes", func(s *h2) { _ = s.Conn.Close() }, receiverCase{class: schemas.ClassReset}},
		{"data-before-headers", func(s *h2) { _ = s.WriteData(s.stream, true, []byte("x")) }, receiverCase{class: schemas.ClassProtocol}},
		{"no-frame-at-all", func(s *h2) { _ = s.Say("HTTP/1.1 200 OK\r\n\r\nthis is not a frame at all, and it is long enough") },
			receiverCase{class: schemas.ClassProtocol}},
		{"never-answers", func(*h2) {}, receiverCase{class: schemas.ClassTimeout, limit: hanging}},
		{"body-never-ends", func(s *h2) { _ = s.head("200", false) }, good},
		{"status-600", func(s *h2) { _ = s.head("600", true) }, receiverCase{class: schemas.ClassProtocol}},
		{"status-abc", func(s *h2) { _ = s.head("abc", true) }, receiverCase{class: schemas.ClassProtocol}},
		{"huge-header", func(s *h2) {
			_ = s.head("200", true, hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 15<<10)},
				hpack.HeaderField{Name: "y", Value: strings.Repeat("y", 1<<10)})
		}, good},
		{"continuation-flood", func(s *h2) { s.continuations(3000) }, receiverCase{class: schemas.ClassProtocol}},
		{"flood-of-1xx", func(s *h2) {
			for range 5000 {
				if s.head("103", false, hpack.HeaderField{Name: "link", Value: "</a>; rel=preload"}) != nil {
					return
				}
			}
		}, receiverCase{class: schemas.ClassProtocol}},
		{"flood-of-settings", func(s *h2) {
			for range 2_000 {
				if s.WriteSettings() != nil {
					return
				}
			}
			answer(s)
		}, good},
		{"flood-of-pings", func(s *h2) {
			for range 2_000 {
				if s.WritePing(false, [8]byte{}) != nil {
					return
				}
			}
			answer(s)
		}, good},
		{"push-promise", func(s *h2) {
			_ = s.WritePushPromise(http2.PushPromiseParam{StreamID: s.stream, PromiseID: 2, EndHeaders: true})
		}, receiverCase{class: schemas.ClassProtocol}},
	} {
		c.want.name, c.want.speaks, c.want.script = "h2-"+c.name, conf, speaksH2(c.script)
		cases = append(cases, c.want)
	}
	return append(cases,
		receiverCase{name: "h2-no-window", speaks: conf, body: []byte(strings.Repeat("x", 256<<10)), limit: hanging, class: schemas.ClassTimeout, posts: -1,
			script: speaksH2(answer, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})},
		receiverCase{name: "h2-tls-and-then-nothing", speaks: conf, limit: hanging, class: schemas.ClassTimeout, posts: -1,
			script: func(c *caller) { c.AwaitClose() }},
	)
}

// continuations sends a header block in n pieces that never ends.
func (s *h2) continuations(n int) {
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.stream, BlockFragment: []byte(block.String())})
	for range n {
		block.Reset()
		_ = enc.WriteField(hpack.HeaderField{Name: "x-flood", Value: strings.Repeat("z", 100), Sensitive: true})
		if s.WriteContinuation(s.stream, false, []byte(block.String())) != nil {
			return
		}
	}
}
