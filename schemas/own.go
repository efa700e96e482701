package schemas

import (
	"math"
	"time"
)

const (
	maxUnixMs = 253402300799999 // 9999-12-31T23:59:59.999Z
	maxCount  = math.MaxInt32
	maxStatus = 999
	// Unix seconds of now, read as milliseconds, lie in 1970: a producer who mixes
	// them up would have everything sent at once.
	minScheduleMs = 100_000_000_000 // 1973
)

// readOwn reads Milena's headers.
func (p *parser) readOwn() {
	d := &p.d
	if !p.own {
		if p.kind == kindDelivery {
			d.Enqueued = timeOf(p.rec.Timestamp.UnixMilli())
		}
		p.readProducers()
		return
	}
	d.Attempt = int(p.number(fieldAttempt, HeaderAttempt, maxCount))
	d.Generation = int(p.number(fieldGeneration, HeaderGeneration, maxCount))
	d.Forwards = int(p.number(fieldForwards, HeaderForwards, maxCount))
	d.LastStatus = int(p.number(fieldLastStatus, HeaderLastStatus, maxStatus))
	d.Claim = p.number(fieldClaim, HeaderClaim, math.MaxInt64)
	d.FirstAttempt = p.time(fieldFirstAttempt, HeaderFirstAttempt)
	d.NotBefore = p.time(fieldNotBefore, HeaderNotBefore)
	d.HopUntil = p.time(fieldHopUntil, HeaderHopUntil)
	d.Released = p.time(fieldReleased, HeaderReleased)
	d.Enqueued = p.time(fieldEnqueued, HeaderEnqueued)
	if d.Enqueued.IsZero() && p.kind == kindDelivery {
		d.Enqueued = timeOf(p.rec.Timestamp.UnixMilli())
	}
	d.Error = CleanError(p.text[fieldError])
	d.ErrorClass = ErrorClass(p.word(fieldErrorClass, HeaderErrorClass))
	d.Run = p.word(fieldRun, HeaderRun)
	if v := p.text[fieldTrace]; len(v) <= maxWord && isASCIIWord(v) { // a bad one costs a link between spans
		d.Trace = v
	}
	if v := p.text[fieldResendOf]; v != "" {
		if _, _, err := ParseDeliveryID(v); err != nil {
			p.unreadable(fieldResendOf, HeaderResendOf, "want a delivery id")
		} else {
			d.ResendOf = v
		}
	}
}

// readProducers reads the headers of ours that stand on a new record.
func (p *parser) readProducers() {
	if v := p.values[fieldNotBefore]; v != nil {
		switch ms, ok := parseInt(v, maxUnixMs); {
		case !ok:
			p.unreadable(fieldNotBefore, HeaderNotBefore, "want unix milliseconds in decimal, such as 1893456000000")
		case ms != 0 && ms < minScheduleMs:
			p.unreadable(fieldNotBefore, HeaderNotBefore, "that is in "+timeOf(ms).Format("2006")+"; want unix milliseconds, not seconds")
		default:
			p.d.NotBefore = timeOf(ms)
		}
	}
	// Only pointers for readers: a bad one is no reason not to deliver.
	if v := p.text[fieldResendOf]; v != "" {
		if _, _, err := ParseDeliveryID(v); err == nil {
			p.d.ResendOf = v
			if run := p.text[fieldRun]; len(run) <= maxWord && isASCIIWord(run) {
				p.d.Run = run
			}
		}
	}
}

func (p *parser) number(f field, name string, limit int64) int64 {
	v := p.values[f]
	if v == nil {
		return 0
	}
	n, ok := parseInt(v, limit)
	if !ok {
		p.unreadable(f, name, "want a decimal number from 0 to "+itoa(limit))
		return 0
	}
	return n
}

func (p *parser) time(f field, name string) time.Time {
	return timeOf(p.number(f, name, maxUnixMs))
}

// word reads a name out of a set that may grow (a newer Milena may run beside
// this one), so only its form is checked.
func (p *parser) word(f field, name string) string {
	v := p.text[f]
	if len(v) > maxWord || !isASCIIWord(v) {
		p.unreadable(f, name, "want at most 128 printable ASCII characters without spaces")
		return ""
	}
	return v
}

const maxWord = 128

func isASCIIWord(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// timeOf is the time at which ms milliseconds had passed; zero for 0 and before.
func timeOf(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func (p *parser) unreadable(f field, name, want string) {
	p.unread |= 1 << f
	p.kept++
	p.malformed("header " + name + " is " + quote(p.values[f]) + ": " + want)
}
