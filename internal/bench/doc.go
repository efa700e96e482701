// Package bench measures the whole way of a delivery beside a bare loop that does
// the least that could be called the same: sign and POST. `make bench` runs it; the
// figures and their command stand in docs/benchmarks.md. It has no exported names.
package bench
