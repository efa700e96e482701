// Package egress makes every connection to a URL that a customer gave.
//
// It promises that no packet goes to an address that is not public, unless the
// configuration allows it: names are resolved here, every address of the answer is
// checked, and the operating system's connect call is checked again just before it
// is made, so that rebinding, odd spellings and mapped or translated IPv6 forms do
// not get through. One bad address among good ones refuses the whole name.
//
// It also promises that what goes wrong has a type (Classify), that nothing is
// followed or decompressed, and that response headers, idle connections and cached
// names are bounded.
//
// The dispatcher sends through RoundTripper, administration checks URLs with
// CheckURL, and "milena egress check" shows Explain. Kafka connections do not come
// through here: they are the operator's, not a customer's.
//
// # Forward proxy
//
// With Config.Proxy the connection is made by an HTTP proxy (CONNECT, for http and
// https URLs alike) or a SOCKS5 proxy. Names are still resolved and checked here,
// and the proxy is asked for the checked address, so the guard holds in full.
// Where this process cannot resolve public names, Config.ProxyDNS hands the names
// to the proxy: then only ports, literal addresses and spellings are checked here,
// and the proxy must refuse private addresses itself. Faults of the proxy are
// *ProxyError and never an endpoint's.
package egress
