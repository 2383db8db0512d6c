package main

import (
	"context"
	"io"
	"testing"

	"go.uber.org/goleak"

	"sema/engines/memengine"
	"sema/examples/internal/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrintsWhatTheDocsShow(t *testing.T) {
	page.Shows(t, "../../docs/http.md", "cd examples && go run ./crawler", func(ctx context.Context, out io.Writer) error {
		return run(ctx, memengine.New(), nil, out)
	})
}
