package egress

import (
	"io"
	"net"
	"strconv"
	"syscall"
)

// SOCKS5, RFC 1928 and 1929. It is written out here because what the proxy replies
// decides whose fault it is, and the usual client gives texts only.
const (
	socksVersion  = 5
	socksNoAuth   = 0
	socksPassword = 2
	socksConnect  = 1
	socksIPv4     = 1
	socksName     = 3
	socksIPv6     = 4
)

func (p *proxy) socks(conn net.Conn, host string, port uint16) error {
	if err := p.socksGreet(conn); err != nil {
		return err
	}
	req := []byte{socksVersion, socksConnect, 0}
	if a, ok := parseIP(host); ok {
		kind := byte(socksIPv6)
		if a.Is4() {
			kind = socksIPv4
		}
		req = append(append(req, kind), a.AsSlice()...)
	} else {
		req = append(append(req, socksName, byte(len(host))), host...) // normalHost: at most 253
	}
	req = append(req, byte(port>>8), byte(port))
	head := make([]byte, 4)
	if err := p.socksSay(conn, req, head); err != nil {
		return err
	}
	if err := p.socksReply(head[1]); err != nil {
		return err
	}
	rest := map[byte]int{socksIPv4: 4 + 2, socksIPv6: 16 + 2}[head[3]]
	if head[3] == socksName {
		if _, err := io.ReadFull(conn, head[:1]); err != nil {
			return p.fault(0, "the connection to it broke", err)
		}
		rest = int(head[0]) + 2
	}
	if rest == 0 {
		return p.fault(0, "its SOCKS5 answer cannot be read", nil)
	}
	if _, err := io.ReadFull(conn, make([]byte, rest)); err != nil {
		return p.fault(0, "the connection to it broke", err)
	}
	return nil
}

func (p *proxy) socksGreet(conn net.Conn) error {
	methods := []byte{socksVersion, 1, socksNoAuth}
	if p.user != nil {
		methods = []byte{socksVersion, 2, socksNoAuth, socksPassword}
	}
	answer := make([]byte, 2)
	if err := p.socksSay(conn, methods, answer); err != nil {
		return err
	}
	switch {
	case answer[0] != socksVersion:
		return p.fault(0, "it does not speak SOCKS5", nil)
	case answer[1] == socksNoAuth:
		return nil
	case answer[1] != socksPassword || p.user == nil:
		return p.fault(0, "it wants another way of authentication", nil)
	}
	pass, _ := p.user.Password()
	name := p.user.Username()
	req := append([]byte{1, byte(len(name))}, name...)
	req = append(append(req, byte(len(pass))), pass...)
	if err := p.socksSay(conn, req, answer); err != nil {
		return err
	}
	if answer[1] != 0 {
		return p.fault(0, "it refused the user name or password", nil)
	}
	return nil
}

func (p *proxy) socksSay(conn net.Conn, say, answer []byte) error {
	if _, err := conn.Write(say); err != nil {
		return p.fault(0, "the connection to it broke", err)
	}
	if _, err := io.ReadFull(conn, answer); err != nil {
		return p.fault(0, "the connection to it broke", err)
	}
	return nil
}

// socksReply sorts RFC 1928's replies: 4 to 6 are about the target.
func (p *proxy) socksReply(code byte) error {
	target := func(n syscall.Errno) error { return &net.OpError{Op: "dial", Net: "tcp", Err: n} }
	switch code {
	case 0:
		return nil
	case 4:
		return target(syscall.EHOSTUNREACH)
	case 5:
		return target(syscall.ECONNREFUSED)
	case 6:
		return target(syscall.ETIMEDOUT)
	case 2:
		return p.refusal(0, "its rules forbid the connection")
	}
	return p.refusal(0, "it could not make the connection (SOCKS5 reply "+strconv.Itoa(int(code))+")")
}
