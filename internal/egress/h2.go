package egress

import (
	"math"
	"strings"

	"golang.org/x/net/http2"
)

// configureH2 gives the transport the HTTP/2 of x/net, and not the copy inside
// net/http: only this one tells that a peer reset a stream with PROTOCOL_ERROR
// (the copy has the hook, but never calls it), and its errors have exported types.
// x/net calls all of it deprecated in favour of the copy.
//
//nolint:staticcheck // deprecated, for the reasons above
func (e *Egress) configureH2() error {
	h2, err := http2.ConfigureTransports(e.transport)
	if err != nil {
		return err
	}
	h2.MaxHeaderListSize = uint32(min(e.cfg.MaxHeaderBytes, math.MaxUint32))
	h2.CountError = func(errType string) {
		if strings.EqualFold(errType, "recv_rststream_protocol_error") {
			e.h2Aborts.Add(1)
		}
	}
	return nil
}
