package testkit

import (
	"time"

	"go.uber.org/goleak"
)

// goneWithin is how long what a package's last test has ended may take to be gone.
const goneWithin = 30 * time.Second

// VerifyMain is goleak.VerifyTestMain for a machine of any speed: goleak waits for
// less than half a second in all, and a client's goroutines end by themselves when
// its connections have.
func VerifyMain(m goleak.TestingM) { goleak.VerifyTestMain(lastGone{m}) }

type lastGone struct{ tests goleak.TestingM }

func (m lastGone) Run() int {
	code := m.tests.Run()
	for began := time.Now(); code == 0 && goleak.Find() != nil && time.Since(began) < goneWithin; {
		continue // goleak waits as it looks
	}
	return code
}
