package main

import (
	"testing"

	"go.uber.org/goleak"

	"sema/examples/internal/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDemo(t *testing.T) {
	page.Shows(t, "../../../docs/jobs.md", "cd examples && go run ./jobs/asynq     # or ./jobs/river", demo)
}
