package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestColumnsAreAsWideAsTheirWidestCell(t *testing.T) {
	var b strings.Builder
	c := &columns{w: &b}
	for _, row := range [][]string{{"A", "B", "C"}, {"ü", "x", "1"}, {"long", "-", ""}} {
		if err := c.add(row...); err != nil {
			t.Fatal(err)
		}
	}
	if b.Len() > 0 {
		t.Errorf("written before the widths are known: %q", b.String())
	}
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	if err := c.add("longer than before", "y", "2"); err != nil { // written at once
		t.Fatal(err)
	}
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	if want := "A     B  C\nü     x  1\nlong  -\nlonger than before  y  2\n"; b.String() != want {
		t.Errorf("%q\nwant %q", b.String(), want)
	}
}

func TestWhatIsWiderThanTheTerminalGivesItsIDARow(t *testing.T) {
	for width, want := range map[int]string{0: "A  ENDPOINT  ID\nb  c         webhooks-1\n", 23: "A  ENDPOINT  ID\nb  c         webhooks-1\n", 22: "A  ENDPOINT\n  ID\nb  c\n  webhooks-1\n", 8: "A  ENDP…\n  ID\nb  c\n  webhooks-1\n"} {
		var b strings.Builder
		c := &columns{w: &b, terminal: width}
		for _, row := range [][]string{{"A", "ENDPOINT", "ID"}, {"b", "c", "webhooks-1"}} {
			if err := c.add(row...); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.flush(); err != nil || b.String() != want {
			t.Errorf("%d columns: %q %v", width, b.String(), err)
		}
	}
}

func TestRowsAreNotKeptForEver(t *testing.T) {
	var b strings.Builder
	c := &columns{w: &b}
	for i := range measured + 1 {
		if err := c.add(fmt.Sprint(i), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != measured+1 {
		t.Errorf("%d lines", n)
	}
}

func TestASummaryLeavesOutColumnsThatSayNothing(t *testing.T) {
	rows := withoutEmpty([][]string{{"A", "B", "C", "D"}, {"-", "-", "1", "-"}, {"-", "-", "-", "-"}}, 1)
	if got := fmt.Sprint(rows); got != "[[A C] [- 1] [- -]]" {
		t.Error(got)
	}
}
