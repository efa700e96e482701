package dlq

import "context"

// turn is a partition's share in a bound on how many of them have a chunk in memory at
// the same time: it has its turn, lets others have theirs, and waits for the next. So
// all of them get on, a chunk each, with the memory of a few. A nil turn always has it.
type turn struct {
	of  chan struct{} // its room is how many may have theirs at the same time
	has bool
}

func (t *turn) begin(ctx context.Context) error {
	if t == nil {
		return ctx.Err()
	}
	select {
	case t.of <- struct{}{}:
		t.has = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *turn) end() {
	if t != nil && t.has {
		<-t.of
		t.has = false
	}
}

// next is for between two chunks, when nothing of the first is held any more.
func (t *turn) next(ctx context.Context) error {
	t.end()
	return t.begin(ctx)
}
