package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

// nextStep adds to the error of a run that ended early how it goes on, and to that of a wait
// that did how to wait on, if they can.
func nextStep(run *schemas.Run, outcomes *dlq.Outcomes, err error) error {
	if err != nil && outcomes != nil {
		if n := outcomes.All.Retrying + outcomes.All.Open; n > 0 {
			err = fmt.Errorf("%w; %d of the %d written are still on their way, and milena runs show %s --wait waits for them", err, n, outcomes.All.Total(), run.ID)
		}
	}
	if err == nil || (run.State != schemas.RunCancelled && run.State != schemas.RunFailed) {
		return err
	}
	return resumeStep(run, err)
}

// resumeStep adds to the error of a run that is not done how it goes on, or that it does not.
func resumeStep(run *schemas.Run, err error) error {
	if dlq.Resumable(run.Kind) {
		return fmt.Errorf("%w; milena runs resume %s goes on with it", err, run.ID)
	}
	return fmt.Errorf("%w; %d of %d are written, and a run of kind %s cannot be resumed", err, run.Counts.Written, run.Counts.Matched, run.Kind)
}

func (p *program) writeReport(rep *dlq.Report) {
	counts := rep.Run.Counts
	switch rep.Run.Kind {
	case schemas.RunDiscard:
		p.notef("%s is %s: %d of %d discarded", rep.Run.ID, rep.Run.State, counts.Written, counts.Matched)
	default:
		p.notef("%s is %s: %d of %d written", rep.Run.ID, rep.Run.State, counts.Written, counts.Matched)
	}
	writeSkipped(p, rep.Run.Counts.Skipped)
	if rep.Exported != "" && rep.Exported != rep.Run.Export { // what was left of a run that is resumed
		p.notef("what was left stands in %s; milena dlq import %s brings it back", rep.Exported, rep.Exported)
	}
	p.writeOutcomes(rep.Outcomes)
}

func (p *program) outcomeTable(o *dlq.Outcomes) {
	table := &columns{w: p.out, terminal: p.width()}
	err := table.add("DELIVERED", "DEAD", "RETRYING", "NOT YET", "UNKNOWN", "DUPLICATE", "ENDPOINT")
	row := func(name string, c dlq.OutcomeCounts) {
		err = errors.Join(err, table.add(itoa(c.Delivered), itoa(c.Dead), itoa(c.Retrying), itoa(c.Open), itoa(c.Unknown), itoa(c.Duplicate), name))
	}
	for _, id := range sortedKeys(o.Endpoints) {
		row(dash(id), o.Endpoints[id])
	}
	row("all", o.All)
	if err = errors.Join(err, table.flush()); p.unsaid == nil {
		p.unsaid = err
	}
}

// writeOutcomes is the end of a wait: a table, and why what is not at its end is not.
func (p *program) writeOutcomes(o *dlq.Outcomes) {
	if o == nil {
		return
	}
	p.outcomeTable(o)
	if all := o.All.Total(); o.Merged > 0 {
		p.notef("%d letters were written as %d deliveries: those of one event to one endpoint are one", all+o.Merged, all)
	}
	if n := o.All.Duplicate; n > 0 {
		p.notef("of %d a second copy was dropped as a duplicate; they count as what became of the first", n)
	}
	_, lines := waitsText(o, time.Now())
	for _, line := range lines {
		p.notef("%s", line)
	}
}
