package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestARefusalNamesTheRightOnce(t *testing.T) {
	err := fmt.Errorf("reading: %w", NameRight(kerr.TopicAuthorizationFailed, "Read", "Topic", "webhooks.dlq"))
	for range 2 {
		if text := err.Error(); strings.Count(text, "no right") != 1 || !strings.Contains(text, "operation Read on Topic webhooks.dlq") ||
			!strings.Contains(text, "--operation Read --topic webhooks.dlq") || !IsDenied(err) {
			t.Error(text)
		}
		err = NameRight(err, "Write", "Topic", "webhooks.runs") // whoever passes it on knows less
	}
}

func TestNoOtherRightIsNamedThanWhatWasRefused(t *testing.T) {
	for _, err := range []error{nil, errors.New("no broker"), kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed} {
		if named := NameRight(err, "Read", "Topic", "webhooks.dlq"); named != err { //nolint:errorlint // the same one
			t.Errorf("%v became %v", err, named)
		}
	}
}
