package lag

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Style says how a report is written for people.
type Style struct {
	Color      bool
	Partitions bool // each partition, not only those with something the matter
}

const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	reset  = "\x1b[0m"
)

// mostHeld is how many endpoints with something on hold are named.
const mostHeld = 3

// Widths of columns: with the default prefix the table of a healthy installation
// fits a terminal of 80 columns.
const (
	stateWidth = len(Unassigned) + 1
	figures    = "%9s %7s %7s  %s" // records, overdue, oldest, who
)

// Write writes a report as a table for a terminal of 80 columns or more.
func (s Style) Write(w io.Writer, r *Report) error {
	var b strings.Builder
	width := len("TOPIC")
	for i := range r.Topics {
		width = max(width, len(r.Topics[i].Topic))
	}
	width = max(width, len(r.Hold.Topic))
	fmt.Fprintf(&b, "%-*s %-*s "+figures+"\n", stateWidth, "STATE", width, "TOPIC", "RECORDS", "OVERDUE", "OLDEST", "WHO")
	for i := range r.Topics {
		s.topic(&b, &r.Topics[i], width, r.At)
	}
	s.hold(&b, &r.Hold, width, r.At)
	s.letters(&b, r, width)
	b.WriteString("\n" + s.paint(r.State, string(r.State)) + ": " + meaning(r.State) + ".")
	if r.Oldest != nil {
		fmt.Fprintf(&b, "\nThe oldest record, ready for %s, is in %s/%d.", span(r.At.Sub(r.Oldest.Since)), r.Oldest.Topic, r.Oldest.Partition)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Behind says how far behind a partition is, or why nothing of it is read; empty: neither.
func (p *Partition) Behind(now time.Time) string {
	switch {
	case p.State == NoCommit:
		return "not read: there is no commit that lies in the log, and --initial-offset has not decided"
	case !p.behind(now):
		return ""
	}
	records := " records, "
	if p.Unfinished == 1 {
		records = " record, "
	}
	return "behind by " + count(p.Unfinished, p.Exact) + records + age(p.Oldest, now)
}

func meaning(s State) string {
	for _, d := range Definitions {
		if d.State == s {
			return d.Means
		}
	}
	return ""
}

func (s Style) topic(b *strings.Builder, t *Topic, width int, now time.Time) {
	overdue := "-"
	if len(t.Partitions) > 0 && t.Partitions[0].tier {
		overdue = number(t.Overdue)
	}
	who := role(t.Group) + ", " + plural(t.Members, "member")
	if t.Members == 0 {
		who = role(t.Group) + ", nobody"
	}
	s.row(b, t.State, fmt.Sprintf("%-*s", width, t.Topic), count(t.Unfinished, t.Exact), overdue, age(t.Oldest, now), who)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if !s.Partitions && (t.Members == 0 || p.State == OK || p.State == Waiting) {
			continue
		}
		overdue = "-"
		if p.tier {
			overdue = number(p.Overdue)
		}
		s.row(b, p.State, fmt.Sprintf("%*d", width, p.Partition), count(p.Unfinished, p.Exact), overdue, age(p.Oldest, now), schemas.CleanText(p.Owner, 60))
	}
}

// row pads what it paints: escapes have no width.
func (s Style) row(b *strings.Builder, state State, what, records, overdue, oldest, who string) {
	line := fmt.Sprintf("%s%*s %s "+figures, s.paint(state, string(state)), stateWidth-len(state), "", what, records, overdue, oldest, who)
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

func (s Style) paint(state State, text string) string {
	if !s.Color {
		return text
	}
	color := red
	switch state {
	case OK, Waiting:
		color = green
	case Behind:
		color = yellow
	}
	return color + text + reset
}

func (s Style) hold(b *strings.Builder, h *Hold, width int, now time.Time) {
	asOf, who := "", ""
	if h.AsOf != nil {
		asOf = "as of " + span(now.Sub(*h.AsOf)) + " ago"
		for i, e := range h.Endpoints {
			if i == mostHeld {
				who += fmt.Sprintf(" and %d more", len(h.Endpoints)-mostHeld)
				break
			}
			who += " " + schemas.CleanText(e.Endpoint, 64) + " " + number(int64(e.Records))
		}
	}
	line := fmt.Sprintf("%-*s %-*s "+figures, stateWidth, "held", width, h.Topic, number(h.Records), "-", age(h.Since, now), asOf)
	b.WriteString(strings.TrimRight(line, " ") + "\n")
	if who != "" { // a row of its own: it may be long
		fmt.Fprintf(b, "%-*s%s\n", stateWidth, "", who)
	}
}

func (s Style) letters(b *strings.Builder, r *Report, width int) {
	if r.Letters == nil {
		fmt.Fprintf(b, "%-*s %-*s %9s  not counted: %s; see milena dlq summary\n", stateWidth, "dead", width, "", "?", r.NotCounted)
		return
	}
	l := r.Letters
	who := ""
	for _, reason := range schemas.Reasons {
		if n := l.ByReason[reason]; n > 0 {
			who += " " + string(reason) + " " + number(n)
		}
	}
	if l.Expires != nil && l.Expires.Before(r.At.Add(72*time.Hour)) {
		who += ", the oldest expires in " + span(l.Expires.Sub(r.At))
	}
	line := fmt.Sprintf("%-*s %-*s "+figures, stateWidth, "dead", width, l.Topic, number(l.Open), "-", age(l.Oldest, r.At), strings.TrimSpace(who))
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// role is a group's name without the prefix.
func role(group string) string { return group[strings.LastIndexAny(group, ".-_")+1:] }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func count(n int64, exact bool) string {
	if exact {
		return number(n)
	}
	return "≤ " + number(n)
}

// number writes thousands apart.
func number(n int64) string {
	digits := []byte(strconv.FormatInt(n, 10))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = slices.Insert(digits, i, ',')
	}
	return string(digits)
}

func age(since *time.Time, now time.Time) string {
	if since == nil {
		return "-"
	}
	return span(now.Sub(*since))
}

// span is a duration in at most two units.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < day:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d/day), int(d.Hours())%24)
}
