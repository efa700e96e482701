package egress

import (
	"math"
	"net/http"

	"golang.org/x/net/http2"
)

// configureH2 gives the transport the HTTP/2 of x/net, and not the copy inside
// net/http. The copy of Go 1.26 repeats a request after a peer reset its stream
// with PROTOCOL_ERROR, which does not say that the request was not processed: one
// attempt became 174 POSTs within a second. x/net repeats only after GOAWAY and
// REFUSED_STREAM, which say so. Its errors also have exported types.
//
// x/net calls all of it deprecated in favour of the copy; a test counts the POSTs.
//
//nolint:staticcheck // deprecated, for the reasons above
func (e *Egress) configureH2(t *http.Transport) error {
	h2, err := http2.ConfigureTransports(t)
	if err != nil {
		return err
	}
	h2.MaxHeaderListSize = uint32(min(e.cfg.MaxHeaderBytes, math.MaxUint32))
	return nil
}
