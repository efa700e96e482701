package schemas_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func TestCanonicalJSONGivesTheVectorsOfRFC8785(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"3.2.2", `{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`, `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{"3.2.3", `{
  "\u20ac": "Euro Sign",
  "\r": "Carriage Return",
  "\ufb33": "Hebrew Letter Dalet With Dagesh",
  "1": "One",
  "\ud83d\ude00": "Emoji: Grinning Face",
  "\u0080": "Control",
  "\u00f6": "Latin Small Letter O With Diaeresis"
}`, "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\"," +
			"\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"},
		{"french", `{"peach":"This sorting order","péché":"is wrong according to French","pêche":"but canonicalization MUST","sin":"ignore locale"}`,
			`{"peach":"This sorting order","péché":"is wrong according to French","pêche":"but canonicalization MUST","sin":"ignore locale"}`},
		{"arrays", ` [ 56 , { "d" : true , "10" : null , "1" : [ ] } ] `, `[56,{"1":[],"10":null,"d":true}]`},
		{"structures", `{"1":{"f":{"f":"hi","F":5},"\n":56.0},"10":{},"":"empty","a":{},"111":[{"e":"yes","E":"no"}],"A":{}}`,
			`{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}`},
		{"scalar", ` "\u0008\u0009\u000a\u000c\u000d\u0001\u001F\u007f\/" `, "\"\\b\\t\\n\\f\\r\\u0001\\u001f\u007f/\""},
	} {
		got, err := schemas.CanonicalJSON([]byte(tc.in))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tc.name, err, got, tc.want)
		}
	}
}

func TestCanonicalNumbersAreThoseOfRFC8785AppendixB(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0", 0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0xc340000000000000: "-9007199254740992", 0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22", 0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef4f: "999999999999999900000", 0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332", 0x41b3de4355555554: "333333333.33333325", 0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334", 0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333", 0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		in, err := json.Marshal(math.Float64frombits(bits))
		if err != nil {
			t.Fatal(err)
		}
		got, err := schemas.CanonicalJSON(in)
		if err != nil || string(got) != want {
			t.Errorf("%016x: %s, %v; want %s", bits, got, err, want)
		}
	}
}

func TestWhatIsNoIJSONIsRefusedWithItsPlace(t *testing.T) {
	for in, why := range map[string]string{
		``: "want a JSON value", ` `: "want a JSON value", `{"a":1,"a":2}`: "duplicate", `{"a":1,"\u0061":2}`: "duplicate",
		`"\ud800"`: "surrogate", `"\udc00\ud800"`: "surrogate", `"\ud800\ud800"`: "surrogate", `"\ud83dx"`: "surrogate", `"\ud83d\n"`: "surrogate",
		"\"\xff\"": "UTF-8", "\"\xed\xa0\x80\"": "UTF-8", "\ufeff{}": "want a JSON value", `1e400`: "beyond", `-1e999`: "beyond",
		`01`: "behind", `+1`: "want a JSON value", `1.`: "digit", `.5`: "want a JSON value", `1e`: "digit", `-`: "digit", `NaN`: "want a JSON value",
		`{} {}`: "behind", `[1,]`: "want a JSON value", `{"a":1,}`: "name", `{a:1}`: "name", `{"a" 1}`: "want :", `[1 2]`: "want ,", `{"a":1 "b":2}`: "want ,",
		"\"a\nb\"": "control", `"abc`: "does not end", `"\x41"`: "escape", `"\u12g4"`: "hex", `"\`: "escape", "[": "want a JSON value", "tru": "want a JSON value",
		"\x00": "want a JSON value", "\"a\x00\"": "control", "{}\x00": "behind",
		strings.Repeat("[", 1002) + strings.Repeat("]", 1002): "levels",
	} {
		got, err := schemas.CanonicalJSON([]byte(in))
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "at byte ") {
			t.Errorf("%.40q: %s, %v; want an error about %s", in, got, err, why)
		}
	}
}

func FuzzCanonicalJSON(f *testing.F) {
	for _, s := range []string{`{"b":[1,2.50,-0],"a":"\ud83d\ude00\u0000"}`, `[[]]`, `"\ud800"`, `1e21`, `1e100`, `{"a":{"a":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := schemas.CanonicalJSON(in)
		if err != nil {
			return
		}
		again, err := schemas.CanonicalJSON(got)
		if err != nil || !bytes.Equal(got, again) {
			t.Fatalf("%q is not a fixed point of %q: %q, %v", got, in, again, err)
		}
		var a, b any
		if err := json.Unmarshal(in, &a); err != nil {
			t.Fatalf("taken, but encoding/json does not: %v", err)
		}
		if err := json.Unmarshal(got, &b); err != nil || !cmp.Equal(a, b) {
			t.Fatalf("%q means another thing than %q: %v", got, in, err)
		}
	})
}

func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(rapid.String(), rapid.Float64Range(-1e9, 1e9)).Draw(t, "object")
		var one, two bytes.Buffer
		write := func(to *bytes.Buffer) {
			to.WriteByte('{')
			for k, v := range m { // in another order each time
				if to.Len() > 1 {
					to.WriteString(" , ")
				}
				name, _ := json.Marshal(k)
				value, _ := json.Marshal(v)
				to.Write(name)
				to.WriteByte(':')
				to.Write(value)
			}
			to.WriteByte('}')
		}
		write(&one)
		write(&two)
		a, errA := schemas.CanonicalJSON(one.Bytes())
		b, errB := schemas.CanonicalJSON(two.Bytes())
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("%s %v\n%s %v", a, errA, b, errB)
		}
	})
}
