package main

import (
	"testing"

	"go.uber.org/goleak"

	"sema/examples/internal/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrintsWhatTheDocsShow(t *testing.T) {
	page.Shows(t, "../../docs/shares.md", "cd examples && go run ./ci", show)
}
