package main

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

func (p *program) dlqReplayCommand() *cobra.Command {
	f := &jobFlags{}
	var rate, endpointRate string
	cmd := &cobra.Command{Use: "replay", Args: noArgs, SuggestFor: []string{"retry", "redrive"},
		Short: "Send dead letters again: as new deliveries of the same events, with a fresh schedule",
		Long: `Send dead letters again: as new deliveries of the same events, with a fresh schedule. Shows first what
would be done and asks; a script says --yes, and --max where there are more than 10,000. What dies after
the beginning is not touched. Ctrl-C stops cleanly, and milena runs resume goes on. Letters whose
endpoint is disabled, deleted or unknown are left alone unless --include-disabled is given.

Exit code 0 says that all is written that could be; what is skipped is counted and no failure. With --wait
it says that each letter that was selected was delivered: 1 where one died again, was skipped for whatever
reason, or is not known.`,
		Example: `  milena dlq replay --endpoint shop-42 --status 5xx --because 'mended, INC-7'
  milena dlq replay --tenant acme --since 6h --rate 200/s --canary --wait
  milena dlq replay --all --yes --max 500000 --rate auto`}
	fs := cmd.Flags()
	filterFlags(cmd, &f.query)
	f.add(cmd, allLetters)
	fs.StringVar(&rate, "rate", "", "so many a second (500/s), or auto: as fast as live deliveries do not suffer (default unlimited)")
	fs.StringVar(&endpointRate, "endpoint-rate", "", "so many a second for each endpoint (10/s)")
	fs.BoolVar(&f.job.Canary, "canary", false, "send one for each endpoint first, and the rest only where that was delivered")
	fs.DurationVar(&f.opts.CanaryWait, "canary-wait", 2*time.Minute, "how long a canary may take")
	fs.StringVar(&f.job.ToEndpoint, "to-endpoint", "", "send them to this endpoint instead, signed with its secrets")
	fs.BoolVar(&f.job.IncludeDisabled, "include-disabled", false, "also for endpoints that are disabled, deleted or unknown")
	waitFlags(cmd, &f.opts)
	return p.dlqJob(cmd, f, func() (err error) {
		f.job.Kind = schemas.RunReplay
		if err := checkWait(cmd); err != nil {
			return err
		}
		if fs.Changed("canary-wait") && !f.job.Canary {
			return usage("--canary-wait is for --canary")
		}
		if f.job.ToEndpoint != "" && !schemas.ValidEndpointID(f.job.ToEndpoint) {
			return usage("--to-endpoint %q: want an endpoint id", f.job.ToEndpoint)
		}
		if err := setRate(&f.job, rate); err != nil {
			return err
		}
		f.job.EndpointRate, err = rateOf("endpoint-rate", endpointRate)
		return err
	})
}

// setRate reads --rate of what replays.
func setRate(job *dlq.Job, text string) (err error) {
	if job.Auto = text == "auto"; job.Auto {
		job.Rate = dlq.AutoStart
		return nil
	}
	job.Rate, err = rateOf("rate", text)
	return err
}

// rateOf reads 500/s, 500 or 30/m.
func rateOf(flag, text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	count, unit, _ := strings.Cut(text, "/")
	per := map[string]float64{"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(count, 64)
	if err != nil || per == 0 || n <= 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return 0, usage("--%s %q: want a number a second such as 500/s, or 30/m", flag, text)
	}
	return n / per, nil
}
