package egress

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/milena-project/milena/schemas"
)

// h2Script is a raw HTTP/2 receiver over TLS. script gets every request when it was
// read whole.
type h2Script struct {
	url    string
	posts  atomic.Int32
	script func(fr *http2.Framer, conn net.Conn, stream uint32, nth int32)
}

func newH2(t *testing.T, ca *authority, f func(fr *http2.Framer, conn net.Conn, stream uint32, nth int32)) *h2Script {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{ca.issue(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "127.0.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	s := &h2Script{url: "https://" + l.Addr().String() + "/hook", script: f}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wg.Go(func() { defer c.Close(); s.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open { // a stream that has just ended keeps its connection from being idle
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return s
}

func (s *h2Script) serve(c net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	fr := http2.NewFramer(c, c)
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
			if f.StreamEnded() {
				s.script(fr, c, f.StreamID, s.posts.Add(1))
			}
		}
	}
}

func ok200(fr *http2.Framer, stream uint32) {
	var block blockWriter
	enc := hpack.NewEncoder(&block)
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true, EndStream: true})
}

type blockWriter []byte

func (b *blockWriter) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

func TestHTTP2PostsAreNotRepeatedUnlessTheServerSaysItDidNotProcessThem(t *testing.T) {
	ca := newAuthority(t)
	for name, c := range map[string]struct {
		f      func(fr *http2.Framer, conn net.Conn, stream uint32, nth int32)
		status int
		class  schemas.ErrorClass
		posts  int32
	}{
		"answers": {func(fr *http2.Framer, _ net.Conn, stream uint32, _ int32) { ok200(fr, stream) }, 200, "", 1},
		"PROTOCOL_ERROR after the request": {func(fr *http2.Framer, _ net.Conn, stream uint32, _ int32) {
			_ = fr.WriteRSTStream(stream, http2.ErrCodeProtocol)
		}, 0, schemas.ClassProtocol, 1},
		"CANCEL after the request": {func(fr *http2.Framer, _ net.Conn, stream uint32, _ int32) {
			_ = fr.WriteRSTStream(stream, http2.ErrCodeCancel)
		}, 0, schemas.ClassReset, 1},
		"INTERNAL_ERROR after the request": {func(fr *http2.Framer, _ net.Conn, stream uint32, _ int32) {
			_ = fr.WriteRSTStream(stream, http2.ErrCodeInternal)
		}, 0, schemas.ClassReset, 1},
		"REFUSED_STREAM, then an answer": {func(fr *http2.Framer, _ net.Conn, stream uint32, nth int32) {
			if nth == 1 {
				_ = fr.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
				return
			}
			ok200(fr, stream)
		}, 200, "", 2},
		"GOAWAY that covers the request": {func(fr *http2.Framer, conn net.Conn, stream uint32, _ int32) {
			_ = fr.WriteGoAway(stream, http2.ErrCodeNo, nil)
			conn.Close()
		}, 0, schemas.ClassReset, 1},
		"GOAWAY that leaves the request out, then an answer": {func(fr *http2.Framer, conn net.Conn, stream uint32, nth int32) {
			if nth == 1 {
				_ = fr.WriteGoAway(0, http2.ErrCodeNo, nil)
				return
			}
			ok200(fr, stream)
		}, 200, "", 2},
		"connection closed": {func(_ *http2.Framer, conn net.Conn, _ uint32, _ int32) { conn.Close() }, 0, schemas.ClassReset, 1},
		"frame that is none": {func(_ *http2.Framer, conn net.Conn, _ uint32, _ int32) {
			_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\nthis is not a frame at all, and long enough"))
		}, 0, "", 1},
		"data before headers": {func(fr *http2.Framer, _ net.Conn, stream uint32, _ int32) {
			_ = fr.WriteData(stream, true, []byte("x"))
		}, 0, schemas.ClassProtocol, 1},
		"never answers": {func(*http2.Framer, net.Conn, uint32, int32) {}, 0, schemas.ClassTimeout, 1},
		"flood of 1xx": {func(fr *http2.Framer, _ net.Conn, stream uint32, _ int32) {
			for range 5000 {
				var block blockWriter
				enc := hpack.NewEncoder(&block)
				_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: "103"})
				_ = enc.WriteField(hpack.HeaderField{Name: "link", Value: "</a>; rel=preload"})
				if fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true}) != nil {
					return
				}
			}
		}, 0, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newH2(t, ca, c.f)
			cfg := local()
			cfg.RootCAs = ca.pool
			e := mustNew(t, cfg)
			status, err := post(t, e, s.url, deadline(c.class))
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			if c.class != "" || status == 200 {
				wantClass(t, err, c.class)
			} else if got := Classify(err); got != schemas.ClassProtocol && got != schemas.ClassReset {
				t.Errorf("class %q: %v", got, err)
			}
			if n := s.posts.Load(); n != c.posts {
				t.Errorf("%d POSTs for one attempt, want %d", n, c.posts)
			}
		})
	}
}

func TestHTTP2IsUsedWhereTLSOffersItAndOneConnectionCarriesMany(t *testing.T) {
	ca := newAuthority(t)
	cfg := local()
	cfg.RootCAs = ca.pool
	for _, h2 := range []bool{true, false} {
		var proto atomic.Value
		srv := secure(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "127.0.0.1")}}, h2,
			func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				proto.Store(r.Proto)
			})
		e := mustNew(t, cfg)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if status, err := post(t, e, srv.URL, time.Minute); status != 200 {
					t.Error(status, err)
				}
			})
		}
		wg.Wait()
		want := map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[h2]
		if got := proto.Load(); got != want {
			t.Errorf("protocol %v, want %s", got, want)
		}
		e.CloseIdle()
	}
}
