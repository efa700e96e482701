package dispatcher

// tenant is one tenant's lanes that may start something.
type tenant struct {
	name   string
	lanes  fifo[*lane]
	inRing bool
	count  int // lanes of the tenant that exist
}

// ring serves lanes in turn, tenants first: a tenant with a thousand busy
// endpoints gets the same share of starts as a tenant with one.
type ring struct {
	tenants map[string]*tenant
	turn    fifo[*tenant]
}

func (r *ring) tenant(name string) *tenant {
	t := r.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		r.tenants[name] = t
	}
	t.count++
	return t
}

// leave forgets a tenant with its last lane.
func (r *ring) leave(t *tenant) {
	if t.count--; t.count == 0 {
		delete(r.tenants, t.name)
	}
}

// add puts a lane at the end of its tenant's turn.
func (r *ring) add(l *lane) {
	l.place = placeRing
	t := l.tenant
	t.lanes.push(l)
	if !t.inRing {
		t.inRing = true
		r.turn.push(t)
	}
}

// take removes the lane whose turn it is.
func (r *ring) take() *lane {
	for {
		t, ok := r.turn.pop()
		if !ok {
			return nil
		}
		l, ok := t.lanes.pop()
		if t.inRing = t.lanes.len() > 0; t.inRing {
			r.turn.push(t)
		}
		if ok {
			l.place = placeNone
			return l
		}
	}
}
