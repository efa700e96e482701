package registry

import (
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestTheLongestTimeoutIsOfEndpointsThatAreNotDeleted(t *testing.T) {
	v := newView()
	want := func(longest time.Duration) {
		t.Helper()
		if got := v.longestTimeout(15 * time.Second); got != longest {
			t.Errorf("longest timeout %s, want %s", got, longest)
		}
	}
	put := func(id string, timeout time.Duration, state schemas.EndpointState) {
		v.put(&Endpoint{ID: id, Timeout: schemas.Duration(timeout), State: state}, time.Hour)
	}
	want(15 * time.Second) // whoever comes first may have the default
	put("short", 2*time.Second, schemas.StateEnabled)
	want(2 * time.Second)
	put("usual", 0, schemas.StateEnabled)
	want(15 * time.Second)
	put("long", time.Minute, schemas.StateDisabled)
	want(time.Minute)
	put("long", time.Minute, schemas.StateDeleted)
	want(15 * time.Second)
}
