package main

import (
	"fmt"
	"strconv"

	"github.com/milena-project/milena/schemas"
)

// answerOf is the status, or how an attempt failed without one.
func answerOf(status int, class schemas.ErrorClass) string {
	switch {
	case class != "":
		return safe(string(class))
	case status != 0:
		return strconv.Itoa(status)
	}
	return "-"
}

func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func cutText(s string, limit int) string { return schemas.CleanText(s, limit) }

func sizeText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// counted is a number with what is counted.
func counted(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.FormatInt(n, 10) + " " + thing + "s"
}
