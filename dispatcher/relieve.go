package dispatcher

import "time"

// relieveEvery is how often the longest lane is looked for at most; where there are so many
// lanes that looking takes long, so often that it takes a part of the time.
const (
	relieveEvery = 20 * time.Millisecond
	relievePart  = 10 // one tenth
)

// overdueEvery is how often an intake that waits for room looks whether some lane has
// come to be too long: a lane grows longer by the time alone while its endpoint
// hangs, and the record that would show it may be behind the one that waits.
const overdueEvery = 250 * time.Millisecond

// relieve makes room when a partition has read as much as it may, or all lanes
// together hold as many bytes as they may: the longest lane is put on hold, for one
// endpoint must not stop the others. Where no lane stands out it is this process
// that is slower than the log, and the intake waits: writing the backlog to hold
// would make it slower still.
func (s *lanes) relieve(p *Partition, now time.Time) {
	if now.Before(s.nextSearch) || !s.short(p) {
		return
	}
	switch {
	case s.bytes >= s.cfg.QueuedBytes:
		s.putOnHold(s.longest(nil))
	case p.queued+p.open >= s.cfg.PartitionOffsets:
		s.putOnHold(s.longest(p))
	}
	if s.short(p) {
		s.holdOverdue(now)
	}
	s.nextSearch = now.Add(max(relieveEvery, relievePart*time.Since(now)))
}

// short reports whether the lanes, or those of a partition, hold as much as they may.
func (s *lanes) short(p *Partition) bool {
	return s.queued >= s.readAhead() || s.bytes >= s.cfg.QueuedBytes || p.queued+p.open >= s.cfg.PartitionOffsets
}

// holdOverdue puts on hold every lane that would not start within Config.LaneTime, as
// the next record for it would, or whose oldest attempt has been open for longer than
// that: else endpoints that all hang keep what they have in memory until their
// timeouts, and nobody else's records are read.
func (s *lanes) holdOverdue(now time.Time) {
	for _, l := range s.byID {
		n := l.behind.len() + l.ahead.len()
		if n > 0 && !l.undecided && max(s.wait(l, n, now), l.oldest(now)) > s.cfg.LaneTime {
			s.hold(l, HoldLong)
			if l.ahead.len() > 0 {
				s.dropAhead(l)
			}
		}
	}
}

// standsOut is how many times the average a lane's length is that stands out.
const standsOut = 4

// longest returns the lane with the most deliveries in memory, of one partition or
// (nil) of all; nil if none stands out.
func (s *lanes) longest(p *Partition) *lane {
	var longest *lane
	most, total, busy := 0, 0, 0
	for _, l := range s.byID {
		n := l.behind.len() + l.ahead.len()
		if n == 0 || (p != nil && l.part != p) {
			continue
		}
		total += n
		busy++
		if n > most {
			longest, most = l, n
		}
	}
	if busy > 1 && most < standsOut*total/busy {
		return nil
	}
	return longest
}

func (s *lanes) putOnHold(l *lane) {
	if l == nil {
		return
	}
	s.hold(l, HoldMemory)
	if l.ahead.len() > 0 {
		s.dropAhead(l)
	}
}
