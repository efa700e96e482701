package schemas

// Defaults of an event whose producer did not say (docs: a record without any
// ce_ header is an event of type "event").
const (
	DefaultEventType   = "event"
	DefaultSpecVersion = "1.0"
)

// MalformedError says why a record is not a delivery. Such a record becomes a
// dead letter with Reason malformed; it never stops a partition.
type MalformedError struct{ Why string }

func (e *MalformedError) Error() string { return "malformed record: " + e.Why }

// ParseDelivery reads a record of deliveries, hold or a tier. Missing attributes
// are filled in and the origin is frozen: it is the record's own position unless
// a consistent milena-origin says otherwise. Milena's other headers count only
// with such an origin, except milena-not-before, which a producer may set, and
// milena-resend-of and milena-run beside it, which stand on a resend. Of equal headers
// of ours the first counts.
//
// The only error is *MalformedError. The Delivery has then what could be read,
// always Origin and Payload; Error is the reason, Extra holds the headers that
// could not be read too, and EndpointID is empty when the key was the trouble.
//
// The result shares Payload and the values of Extra with rec.
func ParseDelivery(rec Record) (Delivery, error) {
	p := parser{rec: rec, kind: kindDelivery}
	p.parse()
	if p.err != nil {
		return p.d, p.err
	}
	return p.d, nil
}

// ParseSource reads a record of a source topic, which the router turns into
// deliveries: as ParseDelivery, but the key means nothing, no milena-origin counts,
// and EndpointID and Enqueued stay zero (the first deliveries record sets both).
func ParseSource(rec Record) (Delivery, error) {
	p := parser{rec: rec, kind: kindSource}
	p.parse()
	if p.err != nil {
		return p.d, p.err
	}
	return p.d, nil
}

type recordKind uint8

const (
	kindDelivery recordKind = iota
	kindSource
	kindLetter
)

// parser reads one record. It is on the hot path: all text of a record is copied
// into one string, and nothing else is allocated for an ordinary one.
type parser struct {
	rec  Record
	kind recordKind
	own  bool // Milena wrote it: a consistent origin is there

	values [allFields][]byte  // the first of each header; nil: none
	text   [textFields]string // the same as text
	unread uint64             // bit n: field n could not be read and is kept in Extra
	kept   int                // unknown headers that go to Extra

	d   Delivery
	err *MalformedError // the first one
}

func (p *parser) parse() {
	p.d.Payload = p.rec.Value
	p.collect()
	topicLen := p.placeOrigin()
	p.copyText()
	if p.own {
		p.d.Origin.Topic = p.text[fieldOrigin][:topicLen]
	}
	p.readKey()
	if p.rec.Value == nil && p.kind != kindLetter {
		p.malformed("the value is null")
	}
	p.readEvent()
	p.readOwn()
	p.keepExtra()
	if p.err != nil {
		p.d.Error = CleanError(p.err.Why)
	}
}

// collect finds the first header of each kind.
func (p *parser) collect() {
	for i := range p.rec.Headers {
		h := &p.rec.Headers[i]
		switch f := fieldOf(h.Key); {
		case f < allFields:
			if p.values[f] == nil {
				p.values[f] = h.Value
			}
		default:
			p.kept++
		}
	}
}

// placeOrigin sets the origin, but for its topic where Milena wrote the record.
// Well formed is not enough: a copy stands behind its original, so an origin at
// or behind the record's own place is a producer's invention.
func (p *parser) placeOrigin() (topicLen int) {
	rec := &p.rec
	here := Origin{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset}
	copy(here.TopicID[:], rec.TopicID[:])
	if p.kind == kindSource || p.values[fieldOrigin] == nil {
		p.d.Origin = here
		return 0
	}
	raw := p.values[fieldOrigin]
	o, n, ok := scanOrigin(raw)
	if !ok || (o.TopicID == here.TopicID && o.Partition == here.Partition &&
		o.Offset >= here.Offset && string(raw[:n]) == here.Topic) {
		p.d.Origin = here
		return 0
	}
	p.own, p.d.Origin = true, o
	return n
}

// copyText lays all text into one string, so that it costs one allocation and
// does not keep the fetch response alive.
func (p *parser) copyText() {
	if validEndpointID(p.rec.Key) {
		p.values[fieldKey] = p.rec.Key
	}
	var stack [768]byte
	b := stack[:0]
	for f := range textFields {
		b = append(b, p.values[f]...)
	}
	s := string(b)
	for f := range textFields {
		n := len(p.values[f])
		p.text[f], s = s[:n], s[n:]
	}
}

func (p *parser) readKey() {
	if p.kind != kindDelivery {
		return
	}
	p.d.EndpointID = p.text[fieldKey]
	switch {
	case p.d.EndpointID != "":
	case len(p.rec.Key) == 0:
		p.malformed("no key: it must be the endpoint id")
	default:
		p.malformed("key " + quote(p.rec.Key) + ": not an endpoint id (1 to 64 of A-Z a-z 0-9 _ -)")
	}
}

func (p *parser) readEvent() {
	e := &p.d.Event
	*e = Event{
		ID: p.text[fieldCEID], Source: p.text[fieldCESource], Type: p.text[fieldCEType],
		Time: p.text[fieldCETime], Subject: p.text[fieldCESubject], Tenant: p.text[fieldCETenant],
		SpecVersion: p.text[fieldCESpecVersion], ContentType: p.text[fieldContentType],
	}
	p.d.Traceparent, p.d.Tracestate = p.text[fieldTraceparent], p.text[fieldTracestate]
	p.readMode()
	if e.Source == "" {
		e.Source = p.d.Origin.Topic
	}
	if e.ID == "" {
		e.ID = p.d.Origin.Position()
	}
	if e.Type == "" {
		e.Type = DefaultEventType
	}
	if e.SpecVersion == "" {
		e.SpecVersion = DefaultSpecVersion
	}
}

// readMode looks at the content type, which decides the mode (Kafka binding 3).
func (p *parser) readMode() {
	e := &p.d.Event
	mode := contentMode(e.ContentType)
	e.Structured = mode == modeStructured || mode == modeForeign
	switch {
	case mode == modeBatch:
		p.malformed("a CloudEvents batch (" + ContentTypeBatch + "): one event a record, please")
	case mode == modeStructured && p.rec.Value != nil && p.kind != kindLetter:
		d := &p.d
		if p.own && e.ID != "" && e.Source != "" { // frozen into headers at the first hop
			if p.values[fieldGeneration] == nil {
				return
			}
			d = &Delivery{} // it has died: what was malformed then is malformed still
		}
		if why := d.readStructured(p.rec.Value); why != "" {
			p.malformed(why)
		}
	}
}

func (p *parser) malformed(why string) {
	if p.err == nil && p.kind != kindLetter {
		p.err = &MalformedError{Why: why}
	}
}

// keepExtra keeps the producer's headers in their order, headers of a newer
// Milena, and what could not be read, so that a dead letter shows it. Headers of
// ours that a producer invented end here.
func (p *parser) keepExtra() {
	badKey := p.kind == kindDelivery && len(p.rec.Key) > 0 && p.d.EndpointID == ""
	if p.kept == 0 && !badKey {
		return
	}
	if badKey {
		p.kept++
	}
	extra := make([]Header, 0, p.kept)
	unread := p.unread
	for i := range p.rec.Headers {
		h := &p.rec.Headers[i]
		f := fieldOf(h.Key)
		switch {
		case f == fieldUnknown, f == fieldUnknownMy && p.own:
			extra = append(extra, *h)
		case f < allFields && unread&(1<<f) != 0:
			unread &^= 1 << f
			extra = append(extra, *h)
		}
	}
	if badKey {
		extra = append(extra, Header{Key: HeaderKey, Value: p.rec.Key[:min(len(p.rec.Key), MaxKeyLen)]})
	}
	if len(extra) > 0 {
		p.d.Extra = extra
	}
}
