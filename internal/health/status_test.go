package health

import (
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestTheStateThatMattersMostIsToldAndANewerConfigurationEndsAllOfThem(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	later := now.Add(time.Minute)
	pause := &schemas.Pause{Until: later, Status: 429}
	failing := schemas.Episode{FailingSince: now, Attempts: 5, LastStatus: 500}
	open, off := failing, failing
	open.BreakerStep, open.OpenUntil = 1, later
	off.DisabledVersion, off.DisabledReason, off.DisabledAt = 2, "410 Gone", now
	for _, c := range []struct {
		health *schemas.Health
		want   State
	}{
		{nil, Enabled},
		{&schemas.Health{Version: 2, Held: 3}, Enabled},
		{&schemas.Health{Version: 2, Since: &failing}, Failing},
		{&schemas.Health{Version: 2, Since: &open}, Open},
		{&schemas.Health{Version: 2, Since: &open, Paused: pause}, Paused},
		{&schemas.Health{Version: 2, Since: &open, Paused: &schemas.Pause{Until: now, Status: 429}}, Open},
		{&schemas.Health{Version: 2, Since: &off, Paused: pause}, Disabled},
	} {
		ep := &schemas.Endpoint{ID: "e", State: schemas.StateEnabled, Version: 2}
		if got := Of(ep, c.health, now); got.State != c.want {
			t.Errorf("%+v: %+v, want %s", c.health, got, c.want)
		}
		ep.Version++
		if got := Of(ep, c.health, now); got.State != Enabled {
			t.Errorf("%+v, and a newer configuration: %+v", c.health, got)
		}
		ep.State = schemas.StateDisabled
		if got := Of(ep, c.health, now); got.State != Disabled || !got.Since.IsZero() {
			t.Errorf("%+v, and disabled by configuration: %+v", c.health, got)
		}
	}
}

func TestANewerConfigurationEndsOnlyTroubleThatThereIs(t *testing.T) {
	c := Case{Endpoint: &schemas.Endpoint{ID: "e", State: schemas.StateEnabled, Version: 2}, Owned: true, Health: &schemas.Health{Version: 1, Next: at(5), Held: 3}}
	if why := c.Explain(); len(why) != 1 || !strings.HasPrefix(why[0], "on hold: 3 ") {
		t.Errorf("%q", why)
	}
	c.Health.Paused = &schemas.Pause{}
	if why := c.Explain(); len(why) != 2 || !strings.HasPrefix(why[1], "its configuration is newer than its trouble") {
		t.Errorf("%q", why)
	}
}

func TestAPartitionThatIsBehindOrNotClaimedStandsInTheWay(t *testing.T) {
	ep := &schemas.Endpoint{ID: "e", State: schemas.StateEnabled, Version: 1}
	for _, c := range []struct {
		is   Case
		want string
	}{
		{Case{Owned: true}, "nothing stands in the way: what comes for it is sent at once"},
		{Case{Owned: true, Claimer: "a/1"}, "nothing stands in the way: what comes for it is sent at once"},
		{Case{Owned: true, Unclaimed: true}, "the owner of its partition has not claimed it yet, and sends nothing before it has"},
		{Case{Owned: true, Behind: "behind by 72 records, 1m11s"}, "its partition is behind by 72 records, 1m11s"},
		{Case{Owned: true, Claimer: "a/1", Behind: "behind by 72 records, 1m11s"}, "its partition is behind by 72 records, 1m11s; a/1 claimed it last: if that process is gone, " +
			"the owner has not claimed it yet, and sends nothing before it has"},
	} {
		c.is.Endpoint = ep
		if why := c.is.Explain(); len(why) != 1 || why[0] != c.want {
			t.Errorf("%q, want %q", why, c.want)
		}
	}
}
