package schemas

// Reason says why a delivery is dead.
type Reason string

// The reasons.
const (
	ReasonExhausted        Reason = "exhausted"         // the schedule has ended
	ReasonExpired          Reason = "expired"           // older than its max age, or would be at its next try
	ReasonRejected         Reason = "rejected"          // a final status of the endpoint's retry policy
	ReasonGone             Reason = "gone"              // 410; the endpoint is disabled
	ReasonBlockedAddress   Reason = "blocked_address"   // the egress guard refused every address
	ReasonEndpointDisabled Reason = "endpoint_disabled" // disabled by its owner, an operator or auto-disable
	ReasonEndpointDeleted  Reason = "endpoint_deleted"
	ReasonEndpointUnknown  Reason = "endpoint_unknown" // not registered within ten minutes
	ReasonMalformed        Reason = "malformed"        // unreadable; kept byte for byte
	ReasonTooLarge         Reason = "too_large"        // the broker refuses it with our headers
)

// Reasons lists every Reason.
var Reasons = []Reason{ReasonExhausted, ReasonExpired, ReasonRejected, ReasonGone, ReasonBlockedAddress,
	ReasonEndpointDisabled, ReasonEndpointDeleted, ReasonEndpointUnknown, ReasonMalformed, ReasonTooLarge}

// ErrorClass sorts what can go wrong in one attempt. The empty class is an HTTP answer.
type ErrorClass string

// The classes, by the step at which an attempt failed, and last those that are ours.
const (
	ClassDNS            ErrorClass = "dns"
	ClassConnect        ErrorClass = "connect"
	ClassTLS            ErrorClass = "tls"
	ClassTimeout        ErrorClass = "timeout"
	ClassReset          ErrorClass = "reset"
	ClassProtocol       ErrorClass = "protocol"
	ClassProxy          ErrorClass = "proxy"
	ClassLocal          ErrorClass = "local"
	ClassBlockedAddress ErrorClass = "blocked_address"
	ClassCancelled      ErrorClass = "cancelled"
	ClassInternal       ErrorClass = "internal"
)

// ErrorClasses lists every ErrorClass but the empty one.
var ErrorClasses = []ErrorClass{ClassDNS, ClassConnect, ClassTLS, ClassTimeout, ClassReset, ClassProtocol,
	ClassProxy, ClassLocal, ClassBlockedAddress, ClassCancelled, ClassInternal}

// Outcome is what one attempt came to.
type Outcome string

// The outcomes.
const (
	OutcomeDelivered   Outcome = "delivered"
	OutcomeRetry       Outcome = "retry"
	OutcomeDead        Outcome = "dead"
	OutcomeInterrupted Outcome = "interrupted" // no attempt is counted
	OutcomeDuplicate   Outcome = "duplicate"   // dropped before it was POSTed
)
