package schemas_test

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func TestCloudEventsValuesArePercentEncodedForHTTPOnly(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "",
		"/plain;a=b,c~!#$&'()": "/plain;a=b,c~!#$&'()",
		"Euro € 😀":             "Euro%20%E2%82%AC%20%F0%9F%98%80", // the binding's own example
		`100% "sure"`:          "100%25%20%22sure%22",
		"a\r\nx: y":            "a%0D%0Ax:%20y",
		"\x00\x7f":             "%00%7F",
		"bad\xff":              "bad%EF%BF%BD",
	} {
		if got := schemas.CEHTTPValue(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	d := schemas.Delivery{Event: schemas.Event{ID: "ü 1"}}
	if got := string(d.Headers()[0].Value); got != "ü 1" {
		t.Errorf("a Kafka header is %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "value")
		got := schemas.CEHTTPValue(s)
		if strings.ContainsFunc(got, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' }) {
			t.Fatalf("%q", got)
		}
		if back, err := url.PathUnescape(got); err != nil || back != s {
			t.Fatalf("%q, %v", back, err)
		}
	})
}
