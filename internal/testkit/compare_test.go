package testkit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
)

func TestCompareTellsMissingRepeatedAndCorruptedApart(t *testing.T) {
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprintf("compact=%v", compact), func(t *testing.T) {
			var opts []testkit.ReceiverOption
			if compact {
				opts = append(opts, testkit.Compact())
			}
			rcv, c := testkit.NewReceiver(t, opts...), client(t, nil)
			p := testkit.NewProduced(8)
			p.Add("/a", "msg_ok", []byte("1"))
			p.Add("/b", "msg_ok", []byte("1"))
			p.Add("/a", "msg_twice_wanted", []byte("2"))
			p.Add("/a", "msg_twice_wanted", []byte("2"))
			p.Add("/a", "msg_repeated", []byte("3"))
			p.Add("/a", "msg_missing", []byte("4"))
			p.Add("/a", "msg_corrupted", []byte("5"))
			for _, s := range [][3]string{
				{"/a", "msg_ok", "1"}, {"/b", "msg_ok", "1"}, {"/a", "msg_twice_wanted", "2"}, {"/a", "msg_twice_wanted", "2"},
				{"/a", "msg_repeated", "3"}, {"/a", "msg_repeated", "3"}, {"/a", "msg_repeated", "3"},
				{"/a", "msg_corrupted", "five"}, {"/b", "msg_missing", "4"},
			} {
				if _, _, err := do(t, c, signed(t, rcv.URL(s[0]), s[1], secret, []byte(s[2]))); err != nil {
					t.Fatal(err)
				}
			}
			got := testkit.Compare(p, rcv.Log)
			samples := strings.Join(got.Samples, ",")
			got.Samples = nil
			want := testkit.Comparison{Produced: 7, Received: 9, Missing: 2, Repeats: 2, Corrupted: 1, Unexpected: 1}
			if fmt.Sprint(got) != fmt.Sprint(want) || got.Complete() {
				t.Errorf("got %s, want %s", got, want)
			}
			if !strings.Contains(samples, "/a msg_missing") || !strings.Contains(samples, "/a msg_corrupted") {
				t.Errorf("samples %s", samples)
			}
			if compact != (len(rcv.Log.All()) == 0) {
				t.Errorf("log has %d full lines", len(rcv.Log.All()))
			}
		})
	}
}

func TestSignalHandsOverEventsInOrder(t *testing.T) {
	var s testkit.Signal[int]
	go func() {
		for i := range 100 {
			s.Emit(i)
		}
	}()
	if got := s.Next(t, time.Second); got != 0 {
		t.Errorf("first %d", got)
	}
	if got := s.Until(t, time.Second, func(i int) bool { return i == 98 }); got != 98 {
		t.Errorf("until: %d", got)
	}
	if got := s.Next(t, time.Second); got != 99 {
		t.Errorf("last %d", got)
	}
}

func TestLogCaptureKeepsAttributesAndGroups(t *testing.T) {
	c := testkit.NewLogCapture(t)
	l := c.Logger().With("endpoint_id", "e1").WithGroup("kafka").With("topic", "t")
	go l.Warn("attempt failed", "partition", 3)
	line := c.Await(t, time.Second, "attempt failed", "endpoint_id=e1")
	if line.Attrs["kafka.topic"] != "t" || line.Attrs["kafka.partition"] != int64(3) {
		t.Errorf("attributes %v", line.Attrs)
	}
	if len(c.Find("attempt failed", "no such")) != 0 {
		t.Errorf("found what was not logged")
	}
}
