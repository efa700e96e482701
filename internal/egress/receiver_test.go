package egress

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// scripted is a raw TCP receiver: script gets each connection and the number of
// requests that were read whole is counted.
type scripted struct {
	url   string
	posts atomic.Int32
	conns atomic.Int32
}

func script(t *testing.T, f func(s *scripted, c *net.TCPConn, r *bufio.Reader)) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{url: "http://" + l.Addr().String() + "/hook"}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			wg.Go(func() {
				defer c.Close()
				f(s, c.(*net.TCPConn), bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return s
}

// read takes one request.
func (s *scripted) read(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return false
	}
	s.posts.Add(1)
	return true
}

func reset(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() }

func TestClassesOfWhatReceiversAnswer(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	for name, c := range map[string]struct {
		answer string
		status int
		class  schemas.ErrorClass
	}{
		"200":                     {ok, 200, ""},
		"204":                     {"HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
		"599":                     {"HTTP/1.1 599 Odd\r\nContent-Length: 0\r\n\r\n", 599, ""},
		"redirect":                {"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", 307, ""},
		"gzip that is none":       {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 200, ""},
		"some 1xx":                {"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + ok, 200, ""},
		"status 600":              {"HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n", 0, schemas.ClassProtocol},
		"status 099":              {"HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n", 0, schemas.ClassProtocol},
		"status 101":              {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", 0, schemas.ClassProtocol},
		"status abc":              {"HTTP/1.1 abc\r\n\r\n", 0, schemas.ClassProtocol},
		"status 20":               {"HTTP/1.1 20 OK\r\n\r\n", 0, schemas.ClassProtocol},
		"HTTP/0.9":                {"<html>hello</html>\r\n", 0, schemas.ClassProtocol},
		"HTTP/2 preface":          {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, schemas.ClassProtocol},
		"HTTP/2 settings frame":   {"\x00\x00\x00\x04\x00\x00\x00\x00\x00\r\n", 0, schemas.ClassProtocol},
		"binary":                  {"\x16\x03\x01\x00\x02\x02\x28\n", 0, schemas.ClassProtocol},
		"bad header line":         {"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n", 0, schemas.ClassProtocol},
		"two lengths":             {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 0, schemas.ClassProtocol},
		"negative length":         {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, schemas.ClassProtocol},
		"unknown transfer coding": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: zip\r\n\r\n", 0, schemas.ClassProtocol},
		"huge header":             {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", 0, schemas.ClassProtocol},
		"flood of 1xx":            {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", 4000) + ok, 0, schemas.ClassProtocol},
		"cut in the status line":  {"HTTP/1.1 2", 0, schemas.ClassProtocol},
		"cut in the headers":      {"HTTP/1.1 200 OK\r\nContent-Le", 0, schemas.ClassProtocol},
		"nothing":                 {"", 0, schemas.ClassReset},
	} {
		t.Run(name, func(t *testing.T) {
			s := script(t, func(s *scripted, conn *net.TCPConn, r *bufio.Reader) {
				if s.read(r) {
					_, _ = io.WriteString(conn, c.answer)
					_ = conn.CloseWrite()
				}
			})
			status, err := post(t, mustNew(t, local()), s.url, time.Minute)
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			wantClass(t, err, c.class)
			if n := s.posts.Load(); n != 1 {
				t.Errorf("%d POSTs for one attempt", n)
			}
		})
	}
}

func TestOnePostLeavesForAnAttemptWhateverTheReceiverDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f     func(s *scripted, c *net.TCPConn, r *bufio.Reader)
		class schemas.ErrorClass
		posts int32
	}{
		"reads, then resets":      {func(s *scripted, c *net.TCPConn, r *bufio.Reader) { s.read(r); reset(c) }, schemas.ClassReset, 1},
		"reads, then closes":      {func(s *scripted, c *net.TCPConn, r *bufio.Reader) { s.read(r) }, schemas.ClassReset, 1},
		"closes at once":          {func(s *scripted, c *net.TCPConn, r *bufio.Reader) {}, schemas.ClassReset, 0},
		"resets at once":          {func(s *scripted, c *net.TCPConn, r *bufio.Reader) { reset(c) }, schemas.ClassReset, 0},
		"never answers":           {func(s *scripted, c *net.TCPConn, r *bufio.Reader) { s.read(r); s.read(r) }, schemas.ClassTimeout, 1},
		"half-closes, then waits": {func(s *scripted, c *net.TCPConn, r *bufio.Reader) { s.read(r); _ = c.CloseWrite(); s.read(r) }, schemas.ClassReset, 1},
		"half of the status line": {func(s *scripted, c *net.TCPConn, r *bufio.Reader) {
			s.read(r)
			_, _ = io.WriteString(c, "HTTP/1.1 20")
			s.read(r)
		}, schemas.ClassTimeout, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some wait for their deadline
			s := script(t, c.f)
			_, err := post(t, mustNew(t, local()), s.url, deadline(c.class))
			if name != "resets at once" || Classify(err) != schemas.ClassConnect { // seen before connect returned
				wantClass(t, err, c.class)
			}
			if n := s.posts.Load(); n != c.posts {
				t.Errorf("%d POSTs for one attempt, want %d", n, c.posts)
			}
		})
	}
}

func TestAnIdleConnectionThatWasClosedCostsNoAttempt(t *testing.T) {
	closed := make(chan struct{}, 1)
	s := script(t, func(s *scripted, c *net.TCPConn, r *bufio.Reader) {
		if s.read(r) { // one request a connection, though keep-alive is promised
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			c.Close()
			closed <- struct{}{}
		}
	})
	e := mustNew(t, local())
	for i := range 300 {
		body := []string{`{"a":1}`, ""}[i%2] // an empty one has no GetBody
		if status, err := postBody(t, e, s.url, body, time.Minute); status != 200 {
			t.Fatalf("request %d: %d %v", i, status, err)
		}
		<-closed
	}
	if s.posts.Load() != 300 {
		t.Errorf("%d POSTs arrived, want 300", s.posts.Load())
	}
}

func TestAnEarlyAnswerInPiecesIsRead(t *testing.T) {
	s := script(t, func(s *scripted, c *net.TCPConn, r *bufio.Reader) {
		for s.conns.Load() == 1 && s.read(r) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			// The second request is answered while its body is being sent.
			_, _ = r.Peek(10)
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\n")
			_, _ = r.Discard(100 << 10)
			_, _ = io.WriteString(c, "Content-Length: 3\r\n\r\nabc")
			_, _ = io.Copy(io.Discard, r)
			return
		}
	})
	e := mustNew(t, local())
	if status, err := post(t, e, s.url, time.Minute); status != 200 {
		t.Fatal(status, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader(strings.Repeat("x", 2<<20)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.RoundTripper().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Error(resp.StatusCode)
	}
}

func TestAKeptConnectionThatEndsAfterTheRequestIsResetAndNotRepeated(t *testing.T) {
	s := script(t, func(s *scripted, c *net.TCPConn, r *bufio.Reader) {
		if s.read(r) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		s.read(r)
		reset(c)
	})
	e := mustNew(t, local())
	if status, err := post(t, e, s.url, time.Minute); status != 200 {
		t.Fatal(status, err)
	}
	_, err := post(t, e, s.url, time.Minute)
	wantClass(t, err, schemas.ClassReset)
	if s.posts.Load() != 2 || s.conns.Load() != 1 {
		t.Errorf("%d POSTs on %d connections, want 2 on 1", s.posts.Load(), s.conns.Load())
	}
}

func TestNothingIsAskedForCompressedAndNoRedirectIsFollowed(t *testing.T) {
	var hits atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		if v := r.Header.Get("Accept-Encoding"); v != "" {
			t.Errorf("Accept-Encoding: %s", v)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
	}))
	defer srv.Close()
	status, err := post(t, mustNew(t, local()), srv.URL, time.Minute)
	if status != 308 || err != nil || hits.Load() != 1 {
		t.Errorf("status %d, %v, %d requests", status, err, hits.Load())
	}
}

func TestProxyVariablesOfTheEnvironmentAreNotRead(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("ALL_PROXY", "http://127.0.0.1:1")
	s := script(t, func(s *scripted, c *net.TCPConn, r *bufio.Reader) {
		s.read(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	e := mustNew(t, Config{AllowCIDRs: loopback, AllowHTTP: true, Resolver: names{"shop.example": addrs("127.0.0.1")}})
	if status, err := post(t, e, strings.Replace(s.url, "127.0.0.1", "shop.example", 1), time.Minute); status != 200 {
		t.Error(status, err)
	}
}

func TestRefusedPortIsConnectAndUnknownNameIsDNS(t *testing.T) {
	e := mustNew(t, Config{AllowCIDRs: loopback, AllowHTTP: true, Resolver: names{}})
	_, err := post(t, e, "http://"+testkit.ReserveAddr(t), time.Minute)
	wantClass(t, err, schemas.ClassConnect)
	_, err = post(t, e, "http://nowhere.example", time.Minute)
	wantClass(t, err, schemas.ClassDNS)
}

func TestOpenConnectionsAreCountedAndIdleOnesBounded(t *testing.T) {
	cfg := local()
	cfg.MaxIdleConns = 3
	e := mustNew(t, cfg)
	for range 8 {
		srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer srv.Close()
		if _, err := post(t, e, srv.URL, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); e.Open() > 3 && time.Now().Before(end); {
		<-time.After(time.Millisecond) // the oldest is closed by a goroutine of net/http
	}
	if n := e.Open(); n > 3 {
		t.Errorf("%d connections open, want at most 3", n)
	}
}
