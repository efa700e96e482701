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
// that nothing has been written yet.
type columns struct {
	w      io.Writer
	rows   [][]string
	since  time.Time // the first of them was added
	widths []int
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
	for i, cell := range row {
		b.WriteString(cell)
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", 2+max(0, c.widths[i]-utf8.RuneCountInString(cell))))
		}
	}
	_, err := fmt.Fprintln(c.w, strings.TrimRight(b.String(), " "))
	return err
}
