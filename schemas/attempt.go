package schemas

import "time"

// Attempt is one record of the attempts topic: what one attempt came to. The key
// is the endpoint id; the record is at most 8 KiB.
type Attempt struct {
	DeliveryID string  `json:"delivery_id"`
	MessageID  string  `json:"message_id"`
	EndpointID string  `json:"endpoint_id"`
	Tenant     string  `json:"tenant,omitempty"`
	EventID    string  `json:"event_id"`
	Source     string  `json:"source"`
	Type       string  `json:"type"`
	Subject    string  `json:"subject,omitempty"`
	Outcome    Outcome `json:"outcome"`
	Reason     Reason  `json:"reason,omitempty"` // where the outcome is dead
	Number     int     `json:"attempt"`          // 1 is the first; 0: none was made
	Generation int     `json:"generation,omitempty"`
	Run        string  `json:"run,omitempty"`
	ResendOf   string  `json:"resend_of,omitempty"`
	Origin     string  `json:"origin"`

	Status     int        `json:"status,omitempty"`
	ErrorClass ErrorClass `json:"error_class,omitempty"`
	Error      string     `json:"error,omitempty"`

	URL       string    `json:"url,omitempty"`
	Started   time.Time `json:"started"`
	Duration  float64   `json:"duration_ms"`
	Delay     float64   `json:"dispatch_delay_ms"`   // ready to first byte
	NotBefore time.Time `json:"not_before,omitzero"` // the due time this attempt had
	NextTry   time.Time `json:"next_try,omitzero"`   // where the outcome is retry
	Bytes     int       `json:"request_bytes"`       // of the payload

	ResponseHeaders   []Pair `json:"response_headers,omitempty"` // not for 2xx; at most 20
	ResponseBody      string `json:"response_body,omitempty"`    // not for 2xx; at most 2 KiB, valid UTF-8
	ResponseTruncated bool   `json:"response_truncated,omitempty"`
}
