package dlq

import (
	"testing"
	"time"
)

func TestATimeThatIsPrintedIsTakenByAFilterInAnyZone(t *testing.T) {
	at := time.Date(2026, 10, 25, 0, 30, 7, 0, time.UTC) // in Prague the clock shows 02:30 twice that night
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("", 2*3600), time.FixedZone("", -9*3600-1800)} {
		text := at.In(zone).Format(clockLayout)
		got, err := parseTime("since", text, time.Now().In(time.FixedZone("", 3600)))
		if err != nil || !got.Equal(at) {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	if got, err := parseTime("since", Clock(at), time.Now()); err != nil || !got.Equal(at) {
		t.Errorf("%s: %v %v", Clock(at), got, err)
	}
}
