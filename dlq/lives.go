package dlq

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/milena-project/milena/schemas"
)

// lives are the deliveries of an export, each with the newest of its lives that the
// file has and that the topic knows. They take 24 to 30 bytes a letter: 256 slices by
// the first byte of the hash, which grow one at a time, and are sorted when all is in.
type lives [256][]life

type life struct {
	delivery uint64 // hash of its id
	file     int32  // the newest generation in the file
	topic    int32  // the newest that the topic knows by a letter or a tombstone; -1: none
	part     int32  // the partition in which topic was last met
	open     bool   // topic is a letter that nobody has settled
}

// add notes a letter of the file.
func (ls *lives) add(l *schemas.Letter) {
	h := hashOfString(l.ID())
	ls[h>>56] = append(ls[h>>56], life{delivery: h, file: int32(l.Generation)}) // bounded when it was parsed
}

// sort leaves the newest life of each delivery. Then they can be found.
func (ls *lives) sort() {
	for i := range ls {
		slices.SortFunc(ls[i], func(a, b life) int {
			return cmp.Or(cmp.Compare(a.delivery, b.delivery), cmp.Compare(b.file, a.file))
		})
		ls[i] = slices.CompactFunc(ls[i], func(a, b life) bool { return a.delivery == b.delivery })
	}
}

// find is nil where the file has no letter of the delivery.
func (ls *lives) find(delivery uint64) *life {
	shard := ls[delivery>>56]
	i, ok := slices.BinarySearchFunc(shard, delivery, func(l life, h uint64) int { return cmp.Compare(l.delivery, h) })
	if !ok {
		return nil
	}
	return &shard[i]
}

// forget makes nothing known of the topic.
func (ls *lives) forget() {
	for _, shard := range ls {
		for i := range shard {
			shard[i].topic, shard[i].part, shard[i].open = -1, -1, false
		}
	}
}

// note takes in a record of the topic. Those of a partition come newest first, so the
// first one of a key is the last word about it there; and partition after partition: of
// a letter that two of them have, because their number was raised, one may be open.
func (ls *lives) note(part int32, rec *schemas.Record) {
	end := bytes.LastIndexByte(rec.Key, '.')
	if end < 0 {
		return
	}
	l := ls.find(hashOf(rec.Key[:end]))
	if l == nil {
		return
	}
	_, generation, err := schemas.ParseLetterKey(string(rec.Key))
	switch g := int32(generation); { //nolint:gosec // bounded when it was parsed
	case err != nil || g < l.topic || g == l.topic && part == l.part:
	case g > l.topic:
		l.topic, l.part, l.open = g, part, rec.Value != nil
	default:
		l.part, l.open = part, l.open || rec.Value != nil
	}
}

// generation is under which an imported letter of this one is written, or that it is there
// already: a later life is, or will be by the same file, or the letter itself.
//
// It is the newest that is known, however old the file is. A replay makes the next one of
// it, and the owner drops what it remembers as POSTed: the life after the file's, say, that
// died and was discarded. Of the life after the newest it remembers at most one that is on its
// way or was delivered, since whatever has died left a letter or a tombstone.
func (l *life) generation(file int) (generation int, there bool) {
	if file < int(l.file) || l.open && int(l.topic) >= file {
		return 0, true
	}
	return max(file, int(l.topic)), false
}

// There is how many letters of an export would be left as they are, because they are
// there already.
func (s *Store) There(ctx context.Context, v *Verified) (int64, error) {
	if err := s.lookUp(ctx, v); err != nil {
		return 0, explain(err, s.topic, "Read")
	}
	missing := int64(0)
	for _, shard := range &v.lives {
		for i := range shard {
			if _, there := shard[i].generation(int(shard[i].file)); !there {
				missing++
			}
		}
	}
	return v.Letters - missing, nil
}

// lookUp reads which lives of the deliveries the topic knows. Letters and tombstones of
// an endpoint are in the partitions that it has or had.
func (s *Store) lookUp(ctx context.Context, v *Verified) error {
	v.lives.forget()
	ends, err := s.reader.Ends(ctx, s.topic)
	if err != nil {
		return err
	}
	starts, err := s.reader.Starts(ctx, s.topic)
	if err != nil {
		return err
	}
	if v.Letters == 0 {
		return nil
	}
	of := partitionsOf(slices.Collect(maps.Keys(v.endpoints)), int32(len(ends)))
	all := int64(0)
	for _, p := range of {
		all += ends[p] - starts[p]
	}
	s.reads(all)
	for _, p := range of {
		err := s.reader.ReadBackwards(ctx, s.topic, p, starts[p], ends[p], chunkFor(1), func(recs []schemas.Record) error {
			s.done.Add(int64(len(recs)))
			for i := range recs {
				v.lives.note(p, &recs[i])
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}
