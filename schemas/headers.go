package schemas

// Header is one Kafka record header.
type Header struct {
	Key   string
	Value []byte
}

// CloudEvents attributes in the Kafka binding's binary mode
// (CloudEvents Kafka protocol binding 1.0.2, section 3.2).
const (
	HeaderCEID          = "ce_id"
	HeaderCESource      = "ce_source"
	HeaderCEType        = "ce_type"
	HeaderCETime        = "ce_time"
	HeaderCESubject     = "ce_subject"
	HeaderCETenant      = "ce_tenant"
	HeaderCESpecVersion = "ce_specversion"
	HeaderContentType   = "content-type"
	HeaderTraceparent   = "traceparent"
	HeaderTracestate    = "tracestate"
)

// Milena's own headers. Of these a producer may set NotBefore and ResendOf only;
// the others count together with a consistent Origin, else the record is new.
const (
	HeaderOrigin       = "milena-origin"        // topic, 8 hex digits of the topic id, partition, offset: see Origin
	HeaderAttempt      = "milena-attempt"       // attempts that came to an outcome so far, decimal
	HeaderGeneration   = "milena-generation"    // deaths before this life, decimal
	HeaderEnqueued     = "milena-enqueued"      // unix ms of the first deliveries record of this life
	HeaderFirstAttempt = "milena-first-attempt" // unix ms
	HeaderNotBefore    = "milena-not-before"    // unix ms; no POST before it
	HeaderHopUntil     = "milena-hop-until"     // unix ms; a tier's record is ready then
	HeaderReleased     = "milena-released"      // unix ms at which the releaser moved it back
	HeaderForwards     = "milena-forwards"      // times forwarded to another partition, decimal
	HeaderLastStatus   = "milena-last-status"   // HTTP status of the last attempt, decimal
	HeaderErrorClass   = "milena-error-class"   // see ErrorClass
	HeaderError        = "milena-error"         // at most 256 bytes of UTF-8
	HeaderRun          = "milena-run"           // id of the run that wrote it
	HeaderTrace        = "milena-trace"         // W3C traceparent of the last span that Milena made for the delivery; only while traces are on
	HeaderResendOf     = "milena-resend-of"     // delivery id of which this is a resend
	HeaderClaim        = "milena-claim"         // hold: claim number of the owner that appended it
	HeaderReason       = "milena-reason"        // dlq: see Reason
	HeaderDiedAt       = "milena-died-at"       // dlq: unix ms
	HeaderPayload      = "milena-payload"       // dlq: null or omitted, where the value is not the payload
	HeaderChange       = "milena-change"        // endpoints, runs, audit: id of the compare-and-swap that wrote it
	HeaderEndpoint     = "milena-endpoint"      // dlq: endpoint id (the key is the delivery id and generation)
	HeaderDiedOf       = "milena-died-of"       // of a replayed delivery: reason/status/class of the death before
	HeaderTombstone    = "milena-tombstone"     // dlq, on a tombstone: replayed or discarded, beside HeaderRun
	HeaderKey          = "milena-key"           // dlq: the record's key where it is no endpoint id, at most MaxKeyLen bytes
)

// ContentTypeStructured marks a CloudEvent in structured mode.
const ContentTypeStructured = "application/cloudevents+json"

// ContentTypeBatch marks a CloudEvents batch, which Milena does not deliver.
const ContentTypeBatch = "application/cloudevents-batch+json"

// Bounds of what Milena writes into headers, in bytes.
const (
	MaxErrorLen      = 256      // HeaderError
	MaxKeyLen        = 1 << 10  // HeaderKey
	MaxAttributesLen = 16 << 10 // attributes of a structured event, which are copied from the value into headers
)
