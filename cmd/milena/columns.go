package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// columns writes rows below each other, each column as wide as its widest cell among
// the first rows; what comes later is written as soon as it is known. Nil widths mean
// that nothing has been written yet. Where they are wider than the terminal, the last
// cell, which is an id to be copied, gets a row of its own.
type columns struct {
	w        io.Writer
	terminal int // its width; 0: it is none
	rows     [][]string
	since    time.Time // the first of them was added
	widths   []int
	split    bool
}

// The widths are taken from so many rows, or from those of so long: whoever searches
// millions for a few sees the first ones at once.
const (
	measured    = 100
	measuredFor = 500 * time.Millisecond
)

func (c *columns) add(cells ...string) error {
	if c.widths != nil {
		return c.write(cells)
	}
	if c.rows == nil {
		c.since = time.Now()
	}
	if c.rows = append(c.rows, cells); len(c.rows) < measured {
		return nil
	}
	return c.flush()
}

// waited is to be called now and then while rows may be waiting.
func (c *columns) waited() error {
	if c.rows == nil || time.Since(c.since) < measuredFor {
		return nil
	}
	return c.flush()
}

// flush writes what is waiting. It is called at the end at the latest.
func (c *columns) flush() error {
	if c.widths != nil || len(c.rows) == 0 {
		return nil
	}
	c.widths = make([]int, len(c.rows[0]))
	for _, row := range c.rows {
		for i, cell := range row {
			c.widths[i] = max(c.widths[i], utf8.RuneCountInString(cell))
		}
	}
	total := -2
	for _, w := range c.widths {
		total += w + 2
	}
	c.split = c.terminal > 0 && total > c.terminal
	for _, row := range c.rows {
		if err := c.write(row); err != nil {
			return err
		}
	}
	c.rows = nil
	return nil
}

func (c *columns) write(row []string) error {
	var b strings.Builder
	last := len(row) - 1
	for i, cell := range row[:last] {
		b.WriteString(cell + strings.Repeat(" ", 2+max(0, c.widths[i]-utf8.RuneCountInString(cell))))
	}
	text := b.String() + row[last]
	if c.split {
		above := []rune(strings.TrimRight(b.String(), " "))
		if len(above) > c.terminal {
			above = append(above[:c.terminal-1], '…')
		}
		text = string(above) + "\n  " + row[last]
	}
	_, err := fmt.Fprintln(c.w, strings.TrimRight(text, " "))
	return err
}
