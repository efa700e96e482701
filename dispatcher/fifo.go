package dispatcher

// fifo is a queue that gives its memory back as it empties.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }

// pushFront puts v before all others.
func (q *fifo[T]) pushFront(v T) {
	if q.head == 0 {
		q.items = append([]T{v}, q.items...)
		return
	}
	q.head--
	q.items[q.head] = v
}

func (q *fifo[T]) pop() (v T, ok bool) {
	if q.len() == 0 {
		return v, false
	}
	var zero T
	v = q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 1024 {
			q.items = nil
		}
	} else if q.head > 64 && q.head > len(q.items)/2 {
		q.items = append(q.items[:0:0], q.items[q.head:]...)
		q.head = 0
	}
	return v, true
}

// drain empties the queue and returns what was in it, in order.
func (q *fifo[T]) drain() []T {
	rest := q.items[q.head:]
	q.items, q.head = nil, 0
	return rest
}
