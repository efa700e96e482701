package dispatcher

import "slices"

// fifo is a queue that gives its memory back as it empties.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

// all is what is in the queue, in order; it must not be kept.
func (q *fifo[T]) all() []T { return q.items[q.head:] }

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }

// pushFront puts v before all others.
func (q *fifo[T]) pushFront(v T) {
	if q.head == 0 {
		q.items = slices.Insert(q.items, 0, v)
		return
	}
	q.head--
	q.items[q.head] = v
}

// insert puts v behind those at the head that come before it.
func (q *fifo[T]) insert(v T, before func(T) bool) {
	i := q.head
	for i < len(q.items) && before(q.items[i]) {
		i++
	}
	if i == q.head {
		q.pushFront(v)
		return
	}
	q.items = slices.Insert(q.items, i, v)
}

// peek returns the head and leaves it.
func (q *fifo[T]) peek() (v T, ok bool) {
	if q.len() == 0 {
		return v, false
	}
	return q.items[q.head], true
}

func (q *fifo[T]) pop() (v T, ok bool) {
	if q.len() == 0 {
		return v, false
	}
	var zero T
	v = q.items[q.head]
	q.items[q.head] = zero
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 1024 {
			q.items = nil
		}
	case q.head > 64 && q.head > len(q.items)/2:
		q.items, q.head = slices.Clone(q.items[q.head:]), 0
	}
	return v, true
}

// remove takes the first one out that fits; ok is false when none does.
func (q *fifo[T]) remove(fits func(T) bool) (v T, ok bool) {
	i := slices.IndexFunc(q.items[q.head:], fits)
	if i < 0 {
		return v, false
	}
	v = q.items[q.head+i]
	q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
	return v, true
}
