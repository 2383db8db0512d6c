//go:build unix && race

package cli_test

// herdPart divides the herd under the race detector, which finds nothing between processes and makes each of
// them ten times as slow. The whole herd runs in make test.
const herdPart = 10
