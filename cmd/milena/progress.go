package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/milena-project/milena/dlq"
)

// progress shows how a run goes: a bar with rate and time left to a person, lines to
// everything else. Its methods are called from one goroutine at a time.
type progress struct {
	out   io.Writer
	total int64
	began time.Time
	told  time.Time
	waits waits

	written bool // all of it; what becomes of it is followed

	terminal bool
	created  time.Time
	probed   bool          // canaries came first
	before   int64         // what was done when the rest began
	bars     *mpb.Progress // nil: lines
	bar      *mpb.Bar
}

// lineEvery is how often lines are written.
const lineEvery = 5 * time.Second

func newProgress(out io.Writer, total int64, terminal bool) *progress {
	p := &progress{out: out, total: total, terminal: terminal, created: time.Now()}
	p.waits.say = p.say
	return p
}

// begin is when the rate begins that tells how much time is left: canaries have none.
func (p *progress) begin(done int64) {
	p.began, p.told = p.created, p.created
	if p.probed {
		p.began, p.told, p.before = time.Now(), time.Now(), done
	}
	if left := p.total - p.before; p.terminal && left > 0 {
		p.bars = mpb.New(mpb.WithOutput(p.out), mpb.WithWidth(48))
		p.bar = p.bars.AddBar(left, mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.CountersNoUnit("%d / %d", decor.WCSyncSpace)),
			mpb.AppendDecorators(decor.Percentage(decor.WCSyncSpace), decor.AverageSpeed(0, "  %.0f/s"),
				decor.Name("  left "), decor.AverageETA(decor.ET_STYLE_GO)))
	}
}

// say writes a line above the bar.
func (p *progress) say(text string) {
	if p.bars != nil {
		_, _ = fmt.Fprintln(p.bars, text)
		return
	}
	fmt.Fprintln(p.out, "milena: "+text)
}

func (p *progress) update(now dlq.Progress) {
	done := now.Settled + now.Skipped
	switch {
	case now.Waiting:
		text := fmt.Sprintf("%d canaries are sent, waiting for what comes of them", now.Written)
		if now.Written == 1 {
			text = "the canary is sent, waiting for what comes of it"
		}
		p.waits.tell(text, text, nil, time.Now())
		p.probed = true
		return
	case now.Probing:
		p.probed = true
		return
	case p.began.IsZero():
		p.begin(done)
	}
	if p.bar != nil {
		p.bar.SetCurrent(done - p.before)
		return
	}
	if time.Since(p.told) < lineEvery {
		return
	}
	p.told = time.Now()
	rate := float64(done-p.before) / time.Since(p.began).Seconds()
	left := "unknown"
	if rate > 0 {
		left = time.Duration(float64(p.total-done) / rate * float64(time.Second)).Round(time.Second).String()
	}
	p.say(fmt.Sprintf("%d of %d, %.0f/s, %s left", done, p.total, rate, left))
}

func (p *progress) following(o dlq.Outcomes) {
	p.end()
	if !p.written {
		p.written = true
		p.say("all is written; waiting for what becomes of it, which Ctrl-C ends and nothing else")
	}
	p.waits.outcomes(&o, time.Now())
}

// end takes the bar away. It may be called again, and of a progress that never began.
func (p *progress) end() {
	if p == nil || p.bars == nil {
		return
	}
	p.bar.Abort(true)
	p.bars.Wait()
	p.bars, p.bar = nil, nil
}

// interrupted is to be called before end, of a progress that never began too.
func (p *progress) interrupted(ctx context.Context) {
	if p != nil && p.bars == nil { // a bar ends its line itself
		endLine(ctx, p.out, p.terminal)
	}
}

// endLine ends the line in which a terminal shows the ^C that ended ctx.
func endLine(ctx context.Context, out io.Writer, terminal bool) {
	if terminal && ctx.Err() != nil {
		fmt.Fprintln(out)
	}
}
