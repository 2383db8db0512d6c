package main

import (
	"bytes"
	"testing"

	"go.uber.org/goleak"

	"sema/examples/internal/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := demo(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	page.Shows(t, "../../../docs/jobs.md", "cd examples/jobs && go run ./asynq     # or ./river", out.String())
}
