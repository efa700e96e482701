package dlq

// Reading is how far the reading that a Store began last has come, in offsets. Of is 0
// where that is not known.
type Reading struct{ Done, Of int64 }

// Reading is for whoever waits: an estimate, of the last reading if there are several.
func (s *Store) Reading() Reading { return Reading{s.done.Load(), s.of.Load()} }

func (s *Store) reads(of int64) {
	s.done.Store(0)
	s.of.Store(of)
}
