package schemas

import "unicode/utf8"

// CEHTTPValue percent-encodes a CloudEvents attribute for an HTTP header, as the
// HTTP binding 1.0.2, section 3.1.3.2, asks: space, double quote, percent sign and
// all that is not printable ASCII. Invalid UTF-8 becomes U+FFFD. What needs no
// encoding is returned as it is. Never for Kafka headers: there the value is the
// UTF-8 text itself (Kafka binding 3.2.3.2).
func CEHTTPValue(s string) string {
	for i := range len(s) {
		if !plainCE(s[i]) {
			return encodeCE(s)
		}
	}
	return s
}

func plainCE(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }

func encodeCE(s string) string {
	const hexUpper = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+16)
	for _, r := range s {
		if r < utf8.RuneSelf && plainCE(byte(r)) {
			b = append(b, byte(r))
			continue
		}
		var enc [utf8.UTFMax]byte
		for _, c := range enc[:utf8.EncodeRune(enc[:], r)] {
			b = append(b, '%', hexUpper[c>>4], hexUpper[c&15])
		}
	}
	return string(b)
}
