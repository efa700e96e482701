package schemas

import "time"

// Audit is one record of the audit topic, keyed by Subject: a change of an
// endpoint, a secret or a run. It never holds a secret.
type Audit struct {
	Subject string    `json:"subject"` // "endpoint/<id>" or "run/<id>"
	Action  string    `json:"action"`  // create, update, delete, enable, disable, rotate-secret, cancel …
	Who     string    `json:"who"`
	Door    string    `json:"door"` // by which it came: cli, http, embedded
	At      time.Time `json:"at"`
	Version int64     `json:"version,omitempty"` // of the endpoint after the change
	Why     string    `json:"why,omitempty"`
	Changes []Change  `json:"changes,omitempty"`
}

// Change is one field that an audited action changed, as JSON text or words.
type Change struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}
