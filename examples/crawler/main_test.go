package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sema/engines/memengine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrintsWhatTheDocsShow(t *testing.T) {
	out := &strings.Builder{}
	if err := run(t.Context(), memengine.New(), nil, out); err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := "    go run ./examples/crawler\n\n    " + strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "\n    ") + "\n"
	if !strings.Contains(string(docs), shown) {
		t.Errorf("docs/http.md does not show\n%s", shown)
	}
}

func TestACancelledCrawlEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, memengine.New(), nil, &strings.Builder{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRules(t *testing.T) {
	r := rules{"/private/": false, "/private/open/": true, "/x": false}
	for page, want := range map[string]bool{
		"http://a/": true, "http://a/private/1": false, "http://a/private/open/1": true, "http://a/x": false, "http://a/%zz": false, "": true,
	} {
		if got := r.allow(page); got != want {
			t.Errorf("%q: %v, want %v", page, got, want)
		}
	}
}
