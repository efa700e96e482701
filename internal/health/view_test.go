package health

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/milena-project/milena/schemas"
)

// healthTopic writes one partition of health as processes would.
type healthTopic struct {
	offset int64
	view   View
}

func (h *healthTopic) claim(epoch, holdEnd int64, earlier ...schemas.Claim) int64 {
	value, _ := json.Marshal(schemas.ClaimRecord{Epoch: epoch, HoldEnd: holdEnd, Earlier: earlier}) //nolint:errchkjson // numbers
	return h.add(schemas.Record{Key: []byte(schemas.ClaimKey + "." + strconv.FormatInt(h.offset, 10)), Value: value})
}

func (h *healthTopic) health(claim int64, id string, next int64) {
	value, _ := json.Marshal(schemas.Health{Claim: claim, Next: &next}) //nolint:errchkjson // numbers
	h.add(schemas.Record{
		Key: []byte(id), Value: value, Headers: []schemas.Header{{Key: schemas.HeaderClaim, Value: strconv.AppendInt(nil, claim, 10)}},
	})
}

func (h *healthTopic) add(rec schemas.Record) int64 {
	rec.Offset = h.offset
	h.offset++
	h.view.Add(&rec)
	return rec.Offset
}

func TestHealthUnderAnOlderClaimIsIgnored(t *testing.T) {
	h := &healthTopic{}
	old := h.claim(1, 0)
	h.health(old, "e", 4)
	now := h.claim(2, 10)
	h.health(now, "e", 6)
	h.health(old, "e", 9)
	if next := *h.view.Endpoints()["e"].Next; next != 6 {
		t.Errorf("next %d, want 6 of the last claim", next)
	}
}

func TestAClaimThatDidNotKnowOfTheOneBeforeItDoesNotCount(t *testing.T) {
	h := &healthTopic{}
	h.claim(1, 0)
	now := h.claim(2, 10)
	late := h.claim(2, 5) // of a process that stood still since it read the first
	h.health(late, "e", 9)
	h.health(now, "e", 6)
	if !h.view.Last(now) || h.view.Last(late) {
		t.Error("the late claim counts")
	}
	if next := *h.view.Endpoints()["e"].Next; next != 6 {
		t.Errorf("next %d, want 6 of the claim that counts", next)
	}
	if next := h.claim(3, 20); !h.view.Last(next) {
		t.Error("a claim that knew of the last does not count")
	}
}

func TestOldClaimsAreForgottenExceptTheLast(t *testing.T) {
	h := &healthTopic{}
	for i := range int64(keptClaims + 3) {
		h.claim(i+1, i)
	}
	if n := len(h.view.OldKeys()); n != 3 {
		t.Errorf("%d keys to forget, want 3", n)
	}
}
