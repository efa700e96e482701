package schemas_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/milena-project/milena/schemas"
)

// What is no JSON object is malformed and keeps its bytes; of what is one, the
// attributes are those that encoding/json reads.
func FuzzStructuredCloudEvent(f *testing.F) {
	for _, v := range []string{
		`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":[1,2,{"id":"no"}]}}`,
		`{"id":"1","source":"/s","type":"t","subject":null,"time":"2026-11-30T12:00:00Z"}`,
		`{"id":"\u00e9\ud83d\ude00","source":"/s","type":"t"}`, `{"id":1,"source":"/s","type":"t"}`, `{"id":"a","id":"b","source":"/s","type":"t"}`,
		`{"id":"\u0000","source":"/s"}`, `[{"id":"1"}]`, `"x"`, `null`, ``, `{`, "{\"id\":\"\xff\"}", ` { "id" : "1" , "source" : "s" } `,
	} {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		d, err := schemas.ParseDelivery(record(string(value), "content-type", schemas.ContentTypeStructured+"; charset=utf-8"))
		if !bytes.Equal(d.Payload, value) {
			t.Fatalf("the payload is %q", d.Payload)
		}
		var object map[string]json.RawMessage
		decodes := json.Unmarshal(value, &object) == nil && object != nil
		if err != nil {
			return
		}
		if !decodes {
			t.Fatalf("%q is no object, and was read as %+v", value, d.Event)
		}
		var id string
		if bytes.Count(value, []byte(`"`)) > 0 && len(object) == membersOf(value) && json.Unmarshal(object["id"], &id) == nil && id != "" && d.Event.ID != id {
			t.Fatalf("id %q, encoding/json reads %q", d.Event.ID, id)
		}
	})
}

// membersOf counts the members of an object, those given twice too.
func membersOf(value []byte) (n int) {
	dec := json.NewDecoder(bytes.NewReader(value))
	for depth := 0; ; {
		tok, err := dec.Token()
		if err != nil {
			return n / 2
		}
		open := tok == json.Delim('{') || tok == json.Delim('[')
		if tok == json.Delim('}') || tok == json.Delim(']') {
			depth--
			continue
		}
		if depth == 1 {
			n++
		}
		if open {
			depth++
		}
	}
}
