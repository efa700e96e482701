package health

import (
	"reflect"
	"testing"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// raised is a topic whose partitions were raised, where an endpoint "e" has its own
// partition and two that were its own before.
func raised(t *testing.T) (topic *Topic, own, former, earlier *View) {
	t.Helper()
	topic = &Topic{views: make([]View, 12)}
	ever := kafka.PartitionsEver([]byte("e"), 12)
	if len(ever) < 3 {
		t.Fatalf("%v", ever)
	}
	for i := range topic.views {
		topic.views[i].records = map[string]*schemas.Health{}
	}
	return topic, &topic.views[ever[0]], &topic.views[ever[1]], &topic.views[ever[2]]
}

func at(offset int64) *int64 { return &offset }

func TestATroubleOfAFormerPartitionIsOverUnlessSomethingIsOnHoldThere(t *testing.T) {
	topic, own, former, _ := raised(t)
	former.records["e"] = &schemas.Health{Version: 3, Since: &schemas.Episode{Attempts: 9, BreakerStep: 1}}
	if h := topic.Of("e"); h != nil || len(topic.Endpoints()) != 0 {
		t.Errorf("%+v", h)
	}
	former.records["e"].Next, former.records["e"].Held, former.records["e"].Written = at(5), 4, 70
	want := schemas.Health{Version: 3, Next: at(5), Held: 4, Written: 70}
	if all := topic.Endpoints(); !reflect.DeepEqual(all, map[string]schemas.Health{"e": want}) {
		t.Errorf("%+v", all)
	}
	own.records["e"] = &schemas.Health{Version: 4, Since: &schemas.Episode{Attempts: 1}, Written: 90}
	want.Version, want.Since = 4, own.records["e"].Since
	if h := topic.Of("e"); !reflect.DeepEqual(h, &want) {
		t.Errorf("%+v", h)
	}
}

func TestWhatIsOnHoldInAllPartitionsOfAnEndpointIsAdded(t *testing.T) {
	topic, own, former, earlier := raised(t)
	own.records["e"] = &schemas.Health{Version: 4, Next: at(7), Held: 1, HeldSince: 50, Written: 90}
	former.records["e"] = &schemas.Health{Version: 3, Next: at(5), Held: 4, HeldSince: 30, Written: 70}
	earlier.records["e"] = &schemas.Health{Version: 2, Next: at(3), Held: 20, Written: 80}
	if h, want := topic.Of("e"), (schemas.Health{Version: 4, Next: at(7), Held: 25, HeldSince: 30, Written: 70}); !reflect.DeepEqual(h, &want) {
		t.Errorf("%+v", h)
	}
	if own.records["e"].Held != 1 || len(topic.Endpoints()) != 1 {
		t.Error("looking has changed what was read")
	}
}

func TestOfATopicThatWasNotReadNothingIsKnown(t *testing.T) {
	var topic Topic
	if h := topic.Of("e"); h != nil {
		t.Errorf("%+v", h)
	}
	if p, process := topic.Owner("e"); p != 0 || process != "" {
		t.Errorf("%d %q", p, process)
	}
}
