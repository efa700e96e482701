package flowtest

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// hanging is the deadline of attempts that are meant to run into it.
const hanging = 2 * time.Second

// protocols are answers that are no HTTP, or not one that a POST may get.
func (h *hostile) protocols() (cases []receiverCase) {
	for name, text := range map[string]string{
		"status-600":               "HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n",
		"status-999":               "HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n",
		"status-099":               "HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n",
		"status-000":               "HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n",
		"status-minus":             "HTTP/1.1 -20 X\r\nContent-Length: 0\r\n\r\n",
		"status-2000":              "HTTP/1.1 2000 X\r\nContent-Length: 0\r\n\r\n",
		"status-20":                "HTTP/1.1 20 X\r\n\r\n",
		"status-abc":               "HTTP/1.1 abc\r\n\r\n",
		"status-missing":           "HTTP/1.1\r\n\r\n",
		"status-101":               "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"version-unknown":          "HTTP/7.3 200 OK\r\n\r\n",
		"http-0.9":                 "<html>hello</html>\r\n",
		"http-2-preface":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"http-2-settings":          "\x00\x00\x00\x04\x00\x00\x00\x00\x00\r\n",
		"tls-on-plain":             "\x16\x03\x01\x00\x02\x02\x28\n",
		"ssh":                      "SSH-2.0-OpenSSH_9.9\r\n",
		"smtp":                     "220 mail.example ESMTP\r\n",
		"header-without-colon":     "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
		"header-of-nul":            "HTTP/1.1 200 OK\r\nX\x00Y: z\r\n\r\n",
		"two-lengths":              "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"negative-length":          "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"unknown-coding":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: zip\r\n\r\n",
		"huge-header":              "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n",
		"many-headers":             "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: yyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", 4000) + "\r\n",
		"flood-of-1xx":             strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", 4000) + ok200,
		"flood-of-100":             strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 4000) + ok200,
		"cut-in-the-status":        "HTTP/1.1 2",
		"cut-in-the-headers":       "HTTP/1.1 200 OK\r\nContent-Le",
		"status-line-without-end":  "HTTP/1.1 200 " + strings.Repeat("O", 80<<10),
		"binary":                   "\x00\x01\x02\x03\xff\xfe\n",
		"line-feeds-before-answer": "\n\n\n\n",
	} {
		cases = append(cases, receiverCase{name: "protocol-" + strings.ReplaceAll(name, ".", "_"), script: once(text), class: schemas.ClassProtocol})
	}
	return append(cases,
		receiverCase{name: "some-1xx", script: once("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + ok200),
			outcome: schemas.OutcomeDelivered, status: 200},
		receiverCase{name: "large-headers", script: once("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 40<<10) + "\r\nContent-Length: 0\r\n\r\n"),
			outcome: schemas.OutcomeDelivered, status: 200},
		receiverCase{name: "http-1_0", script: once("HTTP/1.0 200 OK\r\n\r\n"), outcome: schemas.OutcomeDelivered, status: 200},
		receiverCase{name: "bare-line-feeds", script: once("HTTP/1.1 200 OK\nContent-Length: 0\n\n"), outcome: schemas.OutcomeDelivered, status: 200},
		receiverCase{name: "1xx-for-ever", script: func(c *caller) {
			if c.request() {
				c.trickle("HTTP/1.1 102 Processing\r\n\r\n", time.Millisecond)
			}
		}, limit: hanging, class: schemas.ClassTimeout},
	)
}

// connections are what can become of one, in each step of a request.
func (h *hostile) connections() []receiverCase {
	half := func(c *caller) bool { // reads the head of a request and a part of its body
		_, err := io.ReadFull(c, make([]byte, 400))
		return err == nil
	}
	large := []byte(strings.Repeat("0123456789abcde\n", 8<<10))
	return []receiverCase{
		{name: "never-answers", script: func(c *caller) { c.request(); c.AwaitClose() }, limit: hanging, class: schemas.ClassTimeout},
		{name: "never-reads", script: func(c *caller) { <-c.Done }, limit: hanging, class: schemas.ClassTimeout, posts: -1, body: large},
		{name: "headers-byte-by-byte", script: func(c *caller) {
			if c.request() {
				c.trickle("HTTP/1.1 200 OK\r\nX-Slow: "+strings.Repeat("x", 4000), 100*time.Millisecond)
			}
		}, limit: hanging, class: schemas.ClassTimeout},
		{name: "half-a-status-line", script: func(c *caller) {
			if c.request() && c.Say("HTTP/1.1 20") == nil {
				c.AwaitClose()
			}
		}, limit: hanging, class: schemas.ClassTimeout},
		{name: "resets-after-the-request", script: func(c *caller) { c.request(); c.Reset() }, class: schemas.ClassReset},
		{name: "closes-after-the-request", script: func(c *caller) { c.request() }, class: schemas.ClassReset},
		{name: "closes-its-half", script: func(c *caller) {
			if c.request() {
				_ = c.Conn.(*net.TCPConn).CloseWrite()
				c.AwaitClose()
			}
		}, class: schemas.ClassReset},
		{name: "closes-amid-the-request", script: func(c *caller) { half(c) }, class: schemas.ClassReset, posts: -1, body: large},
		{name: "resets-amid-the-request", script: func(c *caller) { half(c); c.Reset() }, class: schemas.ClassReset, posts: -1, body: large},
		{name: "answers-amid-the-request", script: func(c *caller) {
			if half(c) && c.Say("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") == nil {
				c.AwaitClose()
			}
		}, status: 413, posts: -1, body: large},
		{name: "answers-twice", script: once(ok200 + "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), outcome: schemas.OutcomeDelivered, status: 200},
		{name: "speaks-behind-its-answer", script: once(ok200 + strings.Repeat("garbage", 1000)), outcome: schemas.OutcomeDelivered, status: 200},
		{name: "empty-payload", script: once(ok200), body: []byte{}, outcome: schemas.OutcomeDelivered, status: 200},
		{name: "binary-payload", script: once(ok200), body: []byte("\x00\xff\r\n\r\n\x80"), outcome: schemas.OutcomeDelivered, status: 200},
		{name: "megabyte-payload", script: once(ok200), body: []byte(strings.Repeat("0123456789abcde\n", 63<<10)), outcome: schemas.OutcomeDelivered, status: 200},
	}
}

// handshakes are what can be wrong with TLS, each with the reason in its text.
func (h *hostile) handshakes() []receiverCase {
	t, now := h.t, time.Now()
	stranger := testkit.NewAuthority(t)
	issue := func(a *testkit.Authority, spec testkit.CertSpec) *tls.Config {
		if spec.Hosts == nil {
			spec.Hosts = []string{receiverHost}
		}
		return &tls.Config{Certificates: []tls.Certificate{a.Issue(t, spec).TLS}}
	}
	with := func(edit func(*tls.Config)) *tls.Config {
		c := issue(h.ca, testkit.CertSpec{})
		edit(c)
		return c
	}
	old := with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 })
	weak := with(func(c *tls.Config) {
		c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA}
	})
	wants12 := with(func(c *tls.Config) { c.MaxVersion, c.ClientAuth = tls.VersionTLS12, tls.RequireAnyClientCert })
	wants13 := with(func(c *tls.Config) { c.MinVersion, c.ClientAuth = tls.VersionTLS13, tls.RequireAnyClientCert })
	cases := []receiverCase{
		{name: "tls-good", speaks: issue(h.ca, testkit.CertSpec{}), script: once(ok200), outcome: schemas.OutcomeDelivered, status: 200},
		{name: "tls-resets-after-the-request", speaks: issue(h.ca, testkit.CertSpec{}), script: func(c *caller) { c.request(); c.Reset() }, class: schemas.ClassReset},
		{name: "tls-never-answers", speaks: issue(h.ca, testkit.CertSpec{}), script: func(c *caller) { c.request(); c.AwaitClose() },
			limit: hanging, class: schemas.ClassTimeout},
	}
	for _, c := range []receiverCase{
		{name: "expired", speaks: issue(h.ca, testkit.CertSpec{NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-24 * time.Hour)}), says: "expired on"},
		{name: "not-yet-valid", speaks: issue(h.ca, testkit.CertSpec{NotBefore: now.Add(24 * time.Hour), NotAfter: now.Add(48 * time.Hour)}), says: "valid only from"},
		{name: "wrong-host", speaks: issue(h.ca, testkit.CertSpec{Hosts: []string{"shop.example"}}), says: "it is for shop.example"},
		{name: "unknown-authority", speaks: issue(stranger, testkit.CertSpec{}), says: "authority is not known"},
		{name: "self-signed", speaks: &tls.Config{Certificates: []tls.Certificate{testkit.SelfSigned(t, receiverHost)}}, says: "self-signed"},
		{name: "tls-1_1", speaks: old, says: "TLS 1.2"},
		{name: "old-ciphers", speaks: weak, says: "handshake"},
		{name: "wants-a-client-certificate", speaks: wants12, says: "handshake"},
		{name: "wants-a-client-certificate-1_3", speaks: wants13, says: "certificate"},
	} {
		// A connection that ends with the alert may be seen to end before the alert is read.
		c.class, c.posts, c.script = schemas.ClassTLS, -1, func(c *caller) { c.request(); <-c.Done }
		cases = append(cases, c)
	}
	for name, c := range map[string]receiverCase{
		"plain-http": {script: func(c *caller) { _, _ = c.Read(make([]byte, 1)); _ = c.Say("HTTP/1.1 400 Bad Request\r\n\r\n") }, says: "plain HTTP"},
		"other":      {script: func(c *caller) { _, _ = c.Read(make([]byte, 1)); _ = c.Say("SSH-2.0-OpenSSH_9.9\r\n") }, says: "does not speak TLS"},
		"garbage": {script: func(c *caller) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.Say("\x16\x03\x03\x00\x05garbage")
			c.AwaitClose()
		}, says: "handshake"},
		"closes":      {script: func(c *caller) { _, _ = c.Read(make([]byte, 1)) }, says: "closed during"},
		"resets":      {script: func(c *caller) { _, _ = c.Read(make([]byte, 1)); c.Reset() }, says: "closed during"},
		"never-hello": {script: func(c *caller) { <-c.Done }, limit: hanging, class: schemas.ClassTimeout},
	} {
		url, _ := h.listen(nil, c.script)
		c.name, c.script, c.url = "tls-"+name, nil, strings.Replace(url, "http:", "https:", 1)
		if c.class == "" {
			c.class = schemas.ClassTLS
		}
		cases = append(cases, c)
	}
	return cases
}
