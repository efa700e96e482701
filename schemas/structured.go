package schemas

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

type mode uint8

const (
	modeBinary     mode = iota
	modeStructured      // CloudEvents JSON
	modeForeign         // a CloudEvents format that is not JSON: sent on as it is, with defaults (Kafka binding 3.3)
	modeBatch
)

// contentMode tells the mode by the media type, without its parameters.
func contentMode(contentType string) mode {
	const prefix = "application/cloudevents"
	if len(contentType) < len(prefix) || !strings.EqualFold(contentType[:len(prefix)], prefix) {
		return modeBinary
	}
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch {
	case media == ContentTypeStructured:
		return modeStructured
	case strings.HasPrefix(media, prefix+"-batch"):
		return modeBatch
	case media == prefix, strings.HasPrefix(media, prefix+"+"):
		return modeForeign
	}
	return modeBinary
}

// readStructured reads the attributes of a structured event, which count before
// ce_ headers, and says what is wrong with it. They will be copied into headers at
// every hop, so together they are bounded by MaxAttributesLen.
func (d *Delivery) readStructured(value []byte) (why string) {
	if !json.Valid(value) {
		return "a structured CloudEvent whose value is not JSON"
	}
	e := &d.Event
	total := 0
	ok := eachMember(value, func(name string, raw []byte) bool {
		var to *string
		switch name {
		case "id":
			to = &e.ID
		case "source":
			to = &e.Source
		case "type":
			to = &e.Type
		case "time":
			to = &e.Time
		case "subject":
			to = &e.Subject
		case "tenant":
			to = &e.Tenant
		case "specversion":
			to = &e.SpecVersion
		case "traceparent":
			to = &d.Traceparent
		case "tracestate":
			to = &d.Tracestate
		default:
			return true
		}
		if string(raw) == "null" {
			return true
		}
		s, ok := decodeString(raw)
		if !ok {
			why = "attribute " + name + " of the structured CloudEvent is " + quote(raw) + ": want a string"
			return false
		}
		*to = s
		total += len(s)
		return true
	})
	switch {
	case !ok:
		return "a structured CloudEvent whose value is not a JSON object"
	case why == "" && total > MaxAttributesLen:
		e.Time, e.Subject, e.Tenant, e.SpecVersion, d.Traceparent, d.Tracestate = "", "", "", "", "", ""
		e.ID, e.Source, e.Type = "", "", ""
		return "attributes of the structured CloudEvent are " + itoa(int64(total)) + " bytes, more than " + itoa(MaxAttributesLen)
	}
	return why
}

// eachMember calls f with every member of the object that value is, until f says
// no; false if it is no object. value must be valid JSON.
func eachMember(value []byte, f func(name string, raw []byte) bool) bool {
	i := skipSpace(value, 0)
	if value[i] != '{' {
		return false
	}
	for i = skipSpace(value, i+1); value[i] != '}'; {
		end := skipValue(value, i)
		name, _ := decodeString(value[i:end])
		i = skipSpace(value, end) // the colon
		i = skipSpace(value, i+1)
		end = skipValue(value, i)
		if !f(name, value[i:end]) {
			return true
		}
		if i = skipSpace(value, end); value[i] == ',' {
			i = skipSpace(value, i+1)
		}
	}
	return true
}

// decodeString decodes a JSON string; most hold nothing to decode.
func decodeString(raw []byte) (string, bool) {
	if raw[0] != '"' {
		return "", false
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// skipValue is the index behind the JSON value that begins at i.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		for i++; b[i] != '"'; i++ {
			if b[i] == '\\' {
				i++
			}
		}
		return i + 1
	case '{', '[':
		for depth := 0; ; {
			switch b[i] {
			case '"':
				i = skipValue(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	default:
		for i < len(b) && strings.IndexByte(",]} \t\n\r", b[i]) < 0 {
			i++
		}
		return i
	}
}
