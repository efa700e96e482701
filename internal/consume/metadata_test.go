package consume

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/internal/offsets"
)

func drawTracker(t *rapid.T) (*offsets.Tracker, []int64) {
	tr := offsets.NewTracker(rapid.Int64Range(0, 1<<45).Draw(t, "base"))
	n := rapid.IntRange(0, 12_000).Draw(t, "n")
	seed := rapid.Uint64().Draw(t, "seed")
	next := tr.Next()
	var offsets []int64
	for range n {
		seed = seed*6364136223846793005 + 1442695040888963407
		tr.Received(next)
		offsets = append(offsets, next)
		next++
		if seed>>60 == 0 {
			next += int64(seed >> 52 & 0xff)
		}
	}
	percent := rapid.Uint64Range(0, 100).Draw(t, "percent done")
	for _, o := range offsets {
		seed = seed*6364136223846793005 + 1442695040888963407
		if seed>>33%100 < percent {
			tr.Done(o)
		}
	}
	return tr, offsets
}

func TestMetadataRoundTrip(t *testing.T) {
	id := [16]byte{1, 2, 3, 0xff, 0xfe}
	rapid.Check(t, func(t *rapid.T) {
		tr, offsets := drawTracker(t)
		limit := rapid.SampledFrom([]int{MaxMetadata, 200, 60}).Draw(t, "limit")
		text := encodeMetadata(id, tr, limit)
		if len(text) > limit {
			t.Fatalf("%d characters, limit %d", len(text), limit)
		}
		if text == "" {
			t.Fatal("empty")
		}
		set, foreign := decodeMetadata(text, id, tr.Watermark())
		if foreign != ForeignNone {
			t.Fatalf("own metadata is foreign: %s", foreign)
		}
		partial := false
		for _, o := range offsets {
			done := o >= tr.Watermark() && !tr.Open(o)
			switch {
			case set.Has(o) && !done:
				t.Fatalf("offset %d is not done, or below the watermark", o)
			case done && !set.Has(o):
				partial = true
			case done && partial:
				t.Fatalf("offset %d is there and a lower one is not", o)
			}
		}
		if partial && len(text) < limit-16 {
			t.Fatalf("partial with %d of %d characters", len(text), limit)
		}
		other := id
		other[15]++
		if set, foreign := decodeMetadata(text, other, tr.Watermark()); set != nil || foreign != ForeignTopic {
			t.Fatalf("another topic's: %v %s", set, foreign)
		}
		if set, foreign := decodeMetadata(text, id, tr.Watermark()+1); set != nil || foreign != ForeignWatermark {
			t.Fatalf("another watermark's: %v %s", set, foreign)
		}
	})
}

func TestForeignMetadataIsIgnored(t *testing.T) {
	for text, want := range map[string]Foreign{
		"": ForeignEmpty,
		"webhooks-dispatcher-0b2f1c34-9a8d-4e5f-8a7b-1234567890ab": ForeignMember,
		"0b2f1c34-9a8d-4e5f-8a7b-1234567890ab":                     ForeignMember,
		"q6urq6urq6urq6urq6urqw":                                   ForeignMember,
		"consumer committed by cron":                               ForeignUnknown,
		`{"spark":1}`:                                              ForeignUnknown,
		"milena2;x":                                                ForeignVersion,
		"milena1":                                                  ForeignUnknown,
		"milena1;AAAAAAAAAAAAAAAAAAAAAA;7;!!":                      ForeignUnknown,
		"milena1;AAAAAAAAAAAAAAAAAAAAAA;-7;":                       ForeignUnknown,
		"milena1;AAAAAAAAAAAAAAAAAAAAAA;7;AAA":                     ForeignUnknown,
		"milena1;AAAA;7;":                                          ForeignUnknown,
		"milena1;AAAAAAAAAAAAAAAAAAAAAA;7;":                        ForeignNone,
		"milena1;AAAAAAAAAAAAAAAAAAAAAA;8;":                        ForeignWatermark,
		strings.Repeat("x", 1<<16):                                 ForeignUnknown,
	} {
		if set, got := decodeMetadata(text, [16]byte{}, 7); got != want || len(set) != 0 {
			t.Errorf("%.60q: %v %q, want %q", text, set, got, want)
		}
	}
	if ForeignMember.Warn() || ForeignEmpty.Warn() || !ForeignUnknown.Warn() || !ForeignTopic.Warn() {
		t.Error("warns of the wrong ones")
	}
}

func FuzzDecodeMetadata(f *testing.F) {
	tr := offsets.NewTracker(7)
	for o := int64(7); o < 90; o++ {
		tr.Received(o)
		if o%3 == 0 {
			tr.Done(o)
		}
	}
	f.Add(encodeMetadata([16]byte{}, tr, MaxMetadata), int64(7))
	f.Add("milena1;AAAAAAAAAAAAAAAAAAAAAA;7;AQE", int64(7))
	f.Fuzz(func(t *testing.T, text string, offset int64) {
		set, foreign := decodeMetadata(text, [16]byte{}, offset)
		if foreign != ForeignNone && len(set) > 0 {
			t.Fatal("foreign, and yet something")
		}
		last := offset
		for _, r := range set {
			if r.From <= last || r.To <= r.From {
				t.Fatalf("ranges %v from %d", set, offset)
			}
			last = r.To
		}
	})
}
