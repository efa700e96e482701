package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/milena-project/milena/dlq"
)

// meter tells whoever waits for a reading of Kafka that it goes on: on a terminal by a
// line that is written over, else by a line now and then. Short readings say nothing.
type meter struct {
	out      io.Writer
	terminal bool
	reading  func() dlq.Reading
	tick     func() error // called now and then, never while with writes; may be nil
	began    time.Time    // the reading, of which a command may make several
	last     int64        // how far it had come

	mu    sync.Mutex // guards out, and what with does
	told  time.Time
	drawn bool // a line stands there that is to be written over

	stop chan struct{}
	done chan struct{}
}

const (
	meterPatience = 2 * time.Second        // without a word
	meterEvery    = 250 * time.Millisecond // the line on a terminal, and tick
)

func startMeter(out io.Writer, terminal bool, reading func() dlq.Reading, tick func() error) *meter {
	now := time.Now()
	m := &meter{out: out, terminal: terminal, reading: reading, tick: tick, began: now, told: now.Add(meterPatience - lineEvery),
		stop: make(chan struct{}), done: make(chan struct{})}
	go m.run()
	return m
}

// watch is the meter of what the store reads. End it before anything else is written.
func (r *dlqRun) watch() *meter { return startMeter(r.err, isTTY(r.err), r.store.Reading, nil) }

func (m *meter) run() {
	defer close(m.done)
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-tick.C:
			m.mu.Lock()
			m.turn()
			m.mu.Unlock()
		}
	}
}

func (m *meter) turn() {
	if m.tick != nil {
		m.clear()
		_ = m.tick() // whoever writes on meets the error again
	}
	switch {
	case m.terminal && (m.drawn || time.Since(m.told) >= lineEvery):
		fmt.Fprintf(m.out, "\r\x1b[K%s", m.text())
		m.drawn = true
	case !m.terminal && time.Since(m.told) >= lineEvery:
		m.told = time.Now()
		fmt.Fprintf(m.out, "milena: %s\n", m.text())
	}
}

func (m *meter) text() string {
	r := m.reading()
	if r.Done < m.last {
		m.began = time.Now()
	}
	m.last = r.Done
	took := time.Since(m.began)
	if r.Of <= 0 || r.Done <= 0 {
		return "reading for " + took.Round(time.Second).String()
	}
	done := min(1, float64(r.Done)/float64(r.Of))
	left := time.Duration(float64(took) / done * (1 - done)).Round(time.Second)
	return fmt.Sprintf("reading: %.0f %%, %d of %s, %s left", 100*done, min(r.Done, r.Of), counted(r.Of, "record"), left)
}

func (m *meter) clear() {
	if m.drawn {
		fmt.Fprint(m.out, "\r\x1b[K")
		m.drawn = false
	}
}

// with writes something else meanwhile.
func (m *meter) with(fn func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clear()
	return fn()
}

// end takes the line away. Nothing is written afterwards.
func (m *meter) end() {
	close(m.stop)
	<-m.done
	m.clear()
}
