package dlq

import "time"

// clockLayout has the offset, so that a time that was copied means the same in any
// shell, and in October; in UTC that is one letter.
const clockLayout = "2006-01-02 15:04:05Z07:00"

// Clock writes a time for people, in the zone of whoever reads it. A Query takes it as
// it is written; JSON has times in UTC by RFC 3339.
func Clock(t time.Time) string { return t.Local().Format(clockLayout) }
