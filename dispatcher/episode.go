package dispatcher

import (
	"math/bits"
	"slices"
	"time"

	"github.com/milena-project/milena/schemas"
)

// When an endpoint that keeps failing is told of, and switched off.
const (
	noticeAfter       = time.Hour
	disableAfter      = 72 * time.Hour
	disableAttempts   = 20
	disabledNoSuccess = "no success for 3 days"
	disabledGone      = "410 Gone"
)

// episode lives from an endpoint's first failure to its next success, in memory
// and in the endpoint's health record. It is guarded by lanes.mu.
type episode struct {
	schemas.Episode
	noticed []schemas.NoticeKind // notices whose writing has begun; Notified has the acknowledged ones
}

// failed counts a failed attempt and reports whether health should be told: each
// time the count doubles. The first is not worth a record: most are followed by a
// success, and forgetting one failure costs nothing.
func (e *episode) failed(r *result, now time.Time) (tell bool) {
	if e.Attempts == 0 {
		e.FailingSince = now.UTC()
	}
	e.Attempts++
	e.LastStatus, e.LastClass = r.status, r.class
	e.LastError = schemas.CleanError(r.text)
	return e.Attempts > 1 && bits.OnesCount(uint(e.Attempts)) == 1 //nolint:gosec // positive
}

// active reports whether the endpoint is failing or switched off.
func (e *episode) active() bool { return e.Attempts > 0 || e.DisabledVersion > 0 }

// overdue reports whether it has failed for so long that it is switched off.
func (e *episode) overdue(now time.Time) bool {
	return e.DisabledVersion == 0 && e.Attempts >= disableAttempts && now.Sub(e.FailingSince) >= disableAfter
}

// due names the notice that has become due, or "".
func (e *episode) due(now time.Time) schemas.NoticeKind {
	switch {
	case e.DisabledVersion > 0:
		return e.once(schemas.NoticeDisabled)
	case e.Attempts > 0 && now.Sub(e.FailingSince) >= noticeAfter:
		return e.once(schemas.NoticeFailing)
	}
	return ""
}

// recovered names the notice that the end of the episode asks for: its owner hears
// of the end only after having heard of the beginning.
func (e *episode) recovered() schemas.NoticeKind {
	if e.told(schemas.NoticeFailing) || e.told(schemas.NoticeDisabled) {
		return e.once(schemas.NoticeRecovered)
	}
	return ""
}

func (e *episode) told(kind schemas.NoticeKind) bool {
	return slices.Contains(e.noticed, kind) || slices.Contains(e.Notified, string(kind))
}

func (e *episode) once(kind schemas.NoticeKind) schemas.NoticeKind {
	if e.told(kind) {
		return ""
	}
	e.noticed = append(e.noticed, kind)
	return kind
}

// notice is what the endpoint's owner is told. Its id is the same whoever writes it.
func (e *episode) notice(kind schemas.NoticeKind, ep *Endpoint, now time.Time) *schemas.Notice {
	if kind == "" {
		return nil
	}
	return &schemas.Notice{
		ID: schemas.NoticeID(ep.ID, kind, e.FailingSince), Kind: kind, EndpointID: ep.ID, Tenant: ep.Tenant, URL: ep.LogURL, Owner: ep.Owner,
		FailingSince: e.FailingSince, At: now.UTC(), Attempts: e.Attempts, Reason: e.DisabledReason,
		LastStatus: e.LastStatus, LastClass: e.LastClass, LastError: e.LastError,
	}
}
