//go:build unix && !race

package cli_test

const herdPart = 1
