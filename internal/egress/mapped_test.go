package egress

import (
	"context"
	"net/netip"
	"testing"
)

type fixedAnswer []netip.Addr

func (f fixedAnswer) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return append([]netip.Addr(nil), f...), nil
}

// net.Resolver answers with ::ffff:a.b.c.d for every A record.
func TestIPv4AnswersAreJudgedByTheAddressThatTheyMap(t *testing.T) {
	for text, want := range map[string]bool{"::ffff:93.184.216.34": true, "::ffff:10.0.0.1": false, "::ffff:127.0.0.1": false} {
		e, err := New(Config{Resolver: fixedAnswer{netip.MustParseAddr(text)}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Explain(context.Background(), "https://example.com/")
		if err != nil || v.Allowed != want {
			t.Errorf("%s: allowed %v, want %v (%s, %v)", text, v.Allowed, want, v.Why, err)
		}
	}
}
