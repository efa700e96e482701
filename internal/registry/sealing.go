package registry

import "bytes"

// checkRing refuses a change that seals something with a key ring that is not the
// installation's. Without it a key that somebody made a second time under the same
// id would seal secrets that no process can open, and the deliveries of those
// endpoints would fail and die one after the other.
//
// The rule is that of a process that starts (view.wrongKey): a key that opens one of
// the texts that bear its id is the right one. A first key that has sealed nothing
// yet is being introduced, so another key of the ring has to open what there is.
func (a *Admin) checkRing(rows Rows, before, after *Endpoint) error {
	if !sealsAnew(before, after) {
		return nil
	}
	var first, other error
	opened := false
	mark := []byte(sealedVersion + "." + a.ring.SealingKey() + ".")
	for row := range rows.All() {
		if opened && !bytes.Contains(row.Value, mark) {
			continue // a million rows are not decoded for each change
		}
		ep, err := row.Endpoint()
		if err != nil {
			continue // it is reported where it is read
		}
		for sealed := range sealedTexts(ep) {
			id, _, err := splitSealed(sealed)
			if err != nil {
				continue
			}
			_, err = a.ring.Open(ep.ID, sealed)
			refused := &MissingKeyError{KeyID: id, EndpointID: ep.ID, Wrong: a.ring.Has(id)}
			switch {
			case err == nil && id == a.ring.SealingKey():
				return nil
			case err == nil:
				opened = true
			case id == a.ring.SealingKey():
				first = refused
			default:
				other = refused
			}
		}
	}
	if first != nil || opened {
		return first
	}
	return other
}

// sealsAnew reports whether after holds a sealed text that before does not.
func sealsAnew(before, after *Endpoint) bool {
	had := make(map[string]bool)
	if before != nil {
		for sealed := range sealedTexts(before) {
			had[sealed] = true
		}
	}
	for sealed := range sealedTexts(after) {
		if !had[sealed] {
			return true
		}
	}
	return false
}
