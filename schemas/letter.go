package schemas

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// PayloadMark says why the value of a dead letter is not the payload. A value is
// never null in dlq, because null is a tombstone there.
type PayloadMark string

// The marks; empty: the value is the payload.
const (
	PayloadNull    PayloadMark = "null"    // the record's value was null
	PayloadOmitted PayloadMark = "omitted" // the broker refused the letter with it
)

// Letter is a dead letter: a delivery that will not be tried again on its own,
// and why. Delivery is as it was at its death; Error and LastStatus tell the last
// failure, or for Reason malformed what could not be read.
type Letter struct {
	Delivery
	Reason Reason
	DiedAt time.Time // ms
	Mark   PayloadMark

	Partition int32 // of the letter in dlq, set by ParseLetter
	Offset    int64
}

// NewLetter makes the dead letter of d. It shares payload and Extra with d.
func NewLetter(d Delivery, reason Reason, diedAt time.Time) Letter {
	l := Letter{Delivery: d, Reason: reason, DiedAt: diedAt}
	if d.Payload == nil {
		l.Mark = PayloadNull
	}
	return l
}

// Key is the record's key: one a death, so that the tombstone of an old death
// cannot erase a new one.
func (l *Letter) Key() string { return LetterKey(l.ID(), l.Generation) }

// Headers is what stands on the letter's record. (Those of a delivery that is
// replayed are l.Delivery.Headers.)
func (l *Letter) Headers() []Header {
	w := newHeaderWriter(&l.Delivery, 5)
	w.delivery(&l.Delivery)
	w.text(HeaderEndpoint, l.EndpointID)
	w.text(HeaderReason, string(l.Reason))
	w.time(HeaderDiedAt, l.DiedAt)
	w.text(HeaderPayload, string(l.Mark))
	return w.done(&l.Delivery)
}

// Record is the letter as it is written to dlq: Key, Value and Headers. The
// partition is that of the endpoint id, not of the key. Value is never nil.
func (l *Letter) Record() Record {
	rec := Record{Key: []byte(l.Key()), Value: l.Payload, Headers: l.Headers()}
	if l.Mark != "" || rec.Value == nil {
		rec.Value = []byte{}
	}
	return rec
}

// Bounds of a letter whose payload was omitted, in bytes.
const (
	maxOmittedAttribute = 1 << 10
	maxOmittedExtra     = 16 << 10
)

// OmitPayload makes the letter so small that any broker takes it: for one that
// was refused as too large when it was sent alone. The payload goes, long
// attributes are cut, and of the producer's headers those stay that fit into
// 16 KiB. Such a letter cannot be replayed.
func (l *Letter) OmitPayload() {
	l.Payload, l.Mark = nil, PayloadOmitted
	e := &l.Event
	for _, s := range []*string{&e.ID, &e.Source, &e.Type, &e.Time, &e.Subject, &e.Tenant, &e.SpecVersion, &e.ContentType,
		&l.Traceparent, &l.Tracestate} {
		*s = CleanText(*s, maxOmittedAttribute)
	}
	var kept []Header
	room := maxOmittedExtra
	for _, h := range l.Extra {
		if n := len(h.Key) + len(h.Value) + 8; n <= room {
			room -= n
			kept = append(kept, h)
		}
	}
	l.Extra = kept
}

// LetterKey is the key of a death: the delivery id, a full stop, the generation.
func LetterKey(deliveryID string, generation int) string {
	return deliveryID + "." + itoa(int64(generation))
}

// ParseLetterKey takes apart what LetterKey wrote.
func ParseLetterKey(key string) (deliveryID string, generation int, err error) {
	i := strings.LastIndexByte(key, '.')
	if i > 0 {
		n, ok := canonicalInt(key[i+1:], math.MaxInt32)
		if _, _, bad := ParseDeliveryID(key[:i]); ok && bad == nil {
			return key[:i], int(n), nil
		}
	}
	return "", 0, errors.New("key " + quote([]byte(key)) + " of a dead letter: want <delivery id>.<generation>")
}

// ParseLetter reads a record of dlq that is no tombstone. Headers that cannot be
// read are no error: they are why many a letter is there, and stay in Extra. The
// error is a *MalformedError for a record that Milena did not write: a null value,
// a key that is none, headers that do not belong to it.
func ParseLetter(rec Record) (Letter, error) {
	var l Letter
	if err := ReadLetter(&rec, &l); err != nil {
		return Letter{}, err
	}
	return l, nil
}

// ReadLetter is ParseLetter into a letter that is there already, for whoever reads
// millions of them. After an error l holds nothing of use.
func ReadLetter(rec *Record, l *Letter) error {
	if rec.Value == nil {
		return &MalformedError{Why: "a tombstone is no dead letter"}
	}
	p := parser{rec: *rec, kind: kindLetter}
	p.parse()
	l.Delivery, l.Partition, l.Offset = p.d, rec.Partition, rec.Offset
	l.EndpointID = p.text[fieldEndpoint]
	l.Reason = Reason(p.word(fieldReason, HeaderReason))
	l.Mark = PayloadMark(p.word(fieldPayload, HeaderPayload))
	l.DiedAt = p.time(fieldDiedAt, HeaderDiedAt)
	if l.Mark != "" {
		l.Payload = nil
	}
	var stack [192]byte
	if key := appendLetterKey(stack[:0], &l.Delivery); !p.own || l.Reason == "" || string(key) != string(rec.Key) {
		return l.notThatOf(rec, p.own)
	}
	return nil
}

func appendLetterKey(b []byte, d *Delivery) []byte {
	b = append(d.Origin.append(b), '.')
	b = append(append(b, d.EndpointID...), '.')
	return strconv.AppendInt(b, int64(d.Generation), 10)
}

// notThatOf says why a record is no dead letter: its key, or that the headers do not
// belong to it.
func (l *Letter) notThatOf(rec *Record, own bool) error {
	_, _, err := ParseLetterKey(string(rec.Key))
	switch {
	case err != nil:
		return &MalformedError{Why: err.Error()}
	case !own:
		return &MalformedError{Why: "a dead letter without " + HeaderOrigin}
	case l.Key() != string(rec.Key):
		return &MalformedError{Why: "key " + quote(rec.Key) + " of a dead letter whose headers say " +
			quote([]byte(l.Key()))}
	}
	return &MalformedError{Why: "a dead letter without " + HeaderReason}
}
