package main

import (
	"strconv"
	"strings"

	"github.com/milena-project/milena/schemas"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func signingText(s schemas.Signing) string {
	if len(s.Schemes) == 0 {
		return string(schemas.SchemeStandard)
	}
	var names []string
	for _, scheme := range s.Schemes {
		names = append(names, string(scheme))
	}
	text := strings.Join(names, " ")
	if s.Header != "" {
		text += " in " + s.Header
	}
	if s.Rotation != "" {
		text += ", rotation " + s.Rotation
	}
	return text
}

// limitsText says the limits that are set.
func limitsText(ep *schemas.Endpoint) string {
	var parts []string
	if ep.MaxInFlight > 0 {
		parts = append(parts, itoa(int64(ep.MaxInFlight))+" in flight")
	}
	if ep.RateLimit != nil {
		parts = append(parts, strconv.FormatFloat(ep.RateLimit.Rate, 'g', -1, 64)+" a second, burst "+itoa(int64(ep.RateLimit.Size())))
	}
	if ep.Timeout > 0 {
		parts = append(parts, "timeout "+ep.Timeout.String())
	}
	return strings.Join(parts, ", ")
}

func retryText(r schemas.Retry) string {
	var parts []string
	switch {
	case len(r.Schedule) > 0:
		var delays []string
		for _, d := range r.Schedule {
			delays = append(delays, d.String())
		}
		parts = append(parts, "after "+strings.Join(delays, " "))
	case r.Preset != "":
		parts = append(parts, r.Preset)
	}
	if len(r.FinalStatuses) > 0 {
		parts = append(parts, "final "+strings.Join(r.FinalStatuses, " "))
	}
	if r.MaxAge > 0 {
		parts = append(parts, "max age "+r.MaxAge.String())
	}
	return strings.Join(parts, ", ")
}
