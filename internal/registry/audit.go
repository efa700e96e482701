package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Actor is who makes a change and by which door (cli, http, embedded), for the audit topic.
type Actor struct{ Who, Door string }

// Actions in audit records.
const (
	ActionCreate  = "create"
	ActionUpdate  = "update"
	ActionDelete  = "delete"
	ActionEnable  = "enable"
	ActionDisable = "disable"
	ActionRotate  = "rotate-secret"
	ActionRekey   = "rekey"
)

// auditValueMax bounds one side of a change in an audit record, in bytes.
const auditValueMax = 1024

// auditHidden are the fields of which an audit record says only that they changed.
// Headers may hold credentials that nobody declared as such.
var auditHidden = map[string]bool{"secrets": true, "auth": true, "headers": true, "client_certificate": true}

// auditSilent are the fields that every change touches.
var auditSilent = map[string]bool{"version": true, "created_at": true, "updated_at": true, "id": true, "tenant": true}

// auditRecord describes the change from before (nil: there was none) to after.
func auditRecord(by Actor, action, reason string, at time.Time, before, after *Endpoint) (Change, error) {
	fields, err := changedFields(before, after)
	if err != nil {
		return Change{}, err
	}
	subject := "endpoint/" + after.ID
	value, err := json.Marshal(schemas.Audit{
		At: at, Who: by.Who, Door: by.Door, Action: action, Subject: subject,
		Version: after.Version, Why: reason, Changes: fields,
	})
	if err != nil {
		return Change{}, fmt.Errorf("audit record of endpoint %s: %w", after.ID, err)
	}
	return Change{Key: subject, Value: value}, nil
}

func changedFields(before, after *Endpoint) ([]schemas.Change, error) {
	was, err := fieldsOf(before)
	if err != nil {
		return nil, err
	}
	is, err := fieldsOf(after)
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(is))
	for name := range was {
		if _, ok := is[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var changed []schemas.Change
	for _, name := range names {
		if auditSilent[name] || string(was[name]) == string(is[name]) {
			continue
		}
		c := schemas.Change{Field: name}
		if !auditHidden[name] {
			c.From, c.To = cut(string(was[name])), cut(string(is[name]))
		}
		changed = append(changed, c)
	}
	return changed, nil
}

func fieldsOf(ep *Endpoint) (map[string]json.RawMessage, error) {
	if ep == nil {
		return nil, nil
	}
	b, err := json.Marshal(ep)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", ep.ID, err)
	}
	var m map[string]json.RawMessage
	return m, json.Unmarshal(b, &m)
}

func cut(s string) string {
	if len(s) <= auditValueMax {
		return s
	}
	return fmt.Sprintf("%.*s… (%d bytes)", auditValueMax-32, s, len(s))
}
