package egress

import (
	"context"
	"errors"
	"net/netip"
)

// Verdict is what would become of a URL now.
type Verdict struct {
	URL       string           `json:"url"`           // canonical, where it has one
	Host      string           `json:"host,omitzero"` //
	Port      uint16           `json:"port,omitzero"` //
	Allowed   bool             `json:"allowed"`       //
	Why       string           `json:"why"`           // one sentence
	Proxy     string           `json:"proxy,omitempty"`
	Addresses []AddressVerdict `json:"addresses,omitempty"` // every one that DNS gave
}

// AddressVerdict is what the guard says about one address, and the rule.
type AddressVerdict struct {
	Addr    netip.Addr `json:"address"`
	Allowed bool       `json:"allowed"`
	Rule    string     `json:"rule"`
}

// Explain says what would become of a POST to a URL, and why, for every address
// that its host has now. Nothing is sent to it. A URL that is refused is a Verdict,
// not an error; the error is the context's, or DNS's (*net.DNSError) beside a
// Verdict that says so.
func (e *Egress) Explain(ctx context.Context, raw string) (Verdict, error) {
	v := Verdict{URL: raw}
	if e.proxy != nil {
		v.Proxy = e.proxy.addr
	}
	canonical, err := e.CheckURL(raw)
	if err != nil {
		v.Why = "refused at registration: " + err.Error()
		// The addresses of a well-formed URL are worth seeing all the same.
		u, perr := parseURL(raw)
		if perr != nil {
			return v, nil
		}
		canonical = u.String()
	}
	u, perr := parseURL(canonical)
	if perr != nil {
		return v, perr
	}
	refused := err != nil
	v.URL, v.Host, v.Port = canonical, u.Hostname(), portOf(u)
	if a, err := netip.ParseAddr(v.Host); err == nil {
		v.Addresses = []AddressVerdict{e.judge(v.Host, a)}
	} else if e.proxy != nil && e.cfg.ProxyDNS {
		if !refused {
			v.Allowed, v.Why = true, "allowed: the forward proxy resolves the name and decides about its addresses"
		}
		return v, nil
	} else if err := e.judgeName(ctx, &v); err != nil {
		if !refused {
			v.Why = "the name does not resolve: " + err.Error()
		}
		return v, err
	}
	if refused {
		return v, nil
	}
	for _, a := range v.Addresses {
		if !a.Allowed {
			v.Why = "refused: " + (&BlockedError{Host: v.Host, Addr: a.Addr, Rule: a.Rule}).Error() + "; one such address refuses the host"
			return v, nil
		}
	}
	v.Allowed, v.Why = true, "allowed: every address may be connected to"
	return v, nil
}

func (e *Egress) judge(host string, a netip.Addr) AddressVerdict {
	rule, ok := e.guard.addr(a)
	if !ok && e.guard.hosts[host] {
		rule, ok = rule+", but "+host+" is an allowed host", true
	}
	return AddressVerdict{Addr: a, Allowed: ok, Rule: rule}
}

func (e *Egress) judgeName(ctx context.Context, v *Verdict) error {
	addrs, err := e.dns.lookup(ctx, v.Host)
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	for _, a := range addrs {
		v.Addresses = append(v.Addresses, e.judge(v.Host, a))
	}
	return nil
}
