package schemas

import "strings"

// field is a header that Milena reads. The ones that are text come first, in the
// order in which parse lays them into one string.
type field uint8

const (
	fieldKey field = iota // not a header: the record's key
	fieldCEID
	fieldCESource
	fieldCEType
	fieldCETime
	fieldCESubject
	fieldCETenant
	fieldCESpecVersion
	fieldContentType
	fieldTraceparent
	fieldTracestate
	fieldOrigin
	fieldErrorClass
	fieldError
	fieldRun
	fieldTrace
	fieldResendOf
	fieldReason
	fieldPayload
	fieldEndpoint
	textFields // the number of the fields above

	fieldAttempt = iota - 1
	fieldGeneration
	fieldEnqueued
	fieldFirstAttempt
	fieldNotBefore
	fieldHopUntil
	fieldReleased
	fieldForwards
	fieldLastStatus
	fieldClaim
	fieldDiedAt
	allFields

	fieldUnknown   = allFields     // a header of the producer's
	fieldUnknownMy = allFields + 1 // milena-*, but none that this version knows
)

// fieldOf finds what a header is. Kafka's header keys are case-sensitive; only
// content-type is met in other spellings, and no spelling of milena-* may pass
// as a producer's own.
func fieldOf(key string) field {
	switch key {
	case HeaderCEID:
		return fieldCEID
	case HeaderCESource:
		return fieldCESource
	case HeaderCEType:
		return fieldCEType
	case HeaderCETime:
		return fieldCETime
	case HeaderCESubject:
		return fieldCESubject
	case HeaderCETenant:
		return fieldCETenant
	case HeaderCESpecVersion:
		return fieldCESpecVersion
	case HeaderContentType:
		return fieldContentType
	case HeaderTraceparent:
		return fieldTraceparent
	case HeaderTracestate:
		return fieldTracestate
	}
	if isMilena(key) {
		return milenaField(key)
	}
	if len(key) == len(HeaderContentType) && strings.EqualFold(key, HeaderContentType) {
		return fieldContentType
	}
	return fieldUnknown
}

func isMilena(key string) bool {
	const prefix = "milena-"
	return len(key) >= len(prefix) && key[0]|0x20 == 'm' && strings.EqualFold(key[:len(prefix)], prefix)
}

func milenaField(key string) field {
	switch key {
	case HeaderOrigin:
		return fieldOrigin
	case HeaderAttempt:
		return fieldAttempt
	case HeaderGeneration:
		return fieldGeneration
	case HeaderEnqueued:
		return fieldEnqueued
	case HeaderFirstAttempt:
		return fieldFirstAttempt
	case HeaderNotBefore:
		return fieldNotBefore
	case HeaderHopUntil:
		return fieldHopUntil
	case HeaderReleased:
		return fieldReleased
	case HeaderForwards:
		return fieldForwards
	case HeaderLastStatus:
		return fieldLastStatus
	case HeaderErrorClass:
		return fieldErrorClass
	case HeaderError:
		return fieldError
	case HeaderRun:
		return fieldRun
	case HeaderTrace:
		return fieldTrace
	case HeaderResendOf:
		return fieldResendOf
	case HeaderClaim:
		return fieldClaim
	case HeaderReason:
		return fieldReason
	case HeaderDiedAt:
		return fieldDiedAt
	case HeaderPayload:
		return fieldPayload
	case HeaderEndpoint:
		return fieldEndpoint
	}
	return fieldUnknownMy
}
