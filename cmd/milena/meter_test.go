package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/dlq"
)

// reads lets a meter look at a reading of a minute for so long, and is what it said.
func reads(t *testing.T, terminal bool, howLong time.Duration) (said string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		var out strings.Builder
		began := time.Now()
		m := startMeter(&out, terminal, func() dlq.Reading { return dlq.Reading{Done: int64(time.Since(began) / time.Second), Of: 60} }, nil)
		time.Sleep(howLong + time.Millisecond)
		m.end()
		said = out.String()
	})
	return said
}

func TestAReadingThatTakesLongSaysHowLongItWillTake(t *testing.T) {
	if said := reads(t, false, time.Second); said != "" {
		t.Errorf("after a second: %q", said)
	}
	want := "milena: reading: 3 %, 2 of 60 records, 58s left\nmilena: reading: 12 %, 7 of 60 records, 53s left\n"
	if said := reads(t, false, 8*time.Second); said != want {
		t.Errorf("%q\nwant %q", said, want)
	}
	said := reads(t, true, 4*time.Second)
	if strings.Contains(said, "\n") || !strings.HasSuffix(said, "\r\x1b[K") || !strings.Contains(said, "reading: 5 %, 3 of 60 records, ") {
		t.Errorf("on a terminal: %q", said)
	}
}

func TestTheFirstRowsOfALongSearchAreShownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, rows strings.Builder
		table := &columns{w: &rows}
		m := startMeter(&out, true, func() dlq.Reading { return dlq.Reading{} }, table.waited)
		defer m.end()
		time.Sleep(10 * time.Second)
		if err := m.with(func() error { return table.add("A", "B") }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_ = m.with(func() error {
			if rows.String() != "A  B\n" || !strings.HasSuffix(out.String(), "reading for 11s\r\x1b[K") {
				t.Errorf("%q after a second; %q", rows.String(), out.String())
			}
			return nil
		})
	})
}
