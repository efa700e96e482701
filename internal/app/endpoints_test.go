package app

import (
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestTheMaxAgeIsTheEndpointsOwnElseTheInstallations(t *testing.T) {
	enqueued := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	d := schemas.Delivery{EndpointID: "e", Attempt: 1, Enqueued: enqueued}
	for _, c := range []struct {
		name              string
		own, installation time.Duration
		age               time.Duration
		want              schemas.Reason
	}{
		{"the installation's, over", 0, time.Hour, time.Hour, schemas.ReasonExpired},
		{"the installation's, not over", 0, 200 * time.Hour, 100 * time.Hour, ""},
		{"its own, over", time.Hour, 200 * time.Hour, 2 * time.Hour, schemas.ReasonExpired},
		{"its own, not over", 5 * time.Hour, time.Hour, 2 * time.Hour, ""},
	} {
		rec := &schemas.Endpoint{ID: "e", State: schemas.StateEnabled, URL: "https://a.example/", Retry: schemas.Retry{MaxAge: schemas.Duration(c.own)}}
		ep := prepare(rec, func(string, string) (string, error) { return "", nil }, c.installation, nil)
		if _, dead := ep.Schedule.Next(&d, enqueued.Add(c.age), 0); dead != c.want {
			t.Errorf("%s: dead %q, want %q", c.name, dead, c.want)
		}
		if ep.MaxAge != c.own {
			t.Errorf("%s: on hold it may get %s old, want %s", c.name, ep.MaxAge, c.own)
		}
	}
}

// A record that somebody wrote by hand gets past registration. Its attempts say what is
// wrong with it; they must not end the process, and every one that takes over from it.
func TestAnEndpointWhoseURLCannotBeReadIsTriedLikeAnother(t *testing.T) {
	rec := &schemas.Endpoint{ID: "e", State: schemas.StateEnabled, URL: "::::"}
	ep := prepare(rec, func(string, string) (string, error) { return "", nil }, time.Hour, nil)
	if err := ep.Signer.Sign(nil, "", time.Time{}, nil); err == nil {
		t.Error("nothing says that its URL cannot be read")
	}
	now := time.Now()
	d := schemas.Delivery{EndpointID: "e", Attempt: 1, Enqueued: now}
	if ep.Schedule.Final(500) {
		t.Error("a status is final that is not")
	}
	if due, dead := ep.Schedule.Next(&d, now, 0); dead != "" || !due.After(now) {
		t.Errorf("the next try is at %s, dead %q", due, dead)
	}
}
