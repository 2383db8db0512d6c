package main

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"sema/examples/internal/page"
	"sema/internal/fixture/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDemo(t *testing.T) {
	page.Shows(t, "../../docs/fencing.md", "cd examples && go run ./fencing", run)
}

// Tokens grow, and stay, but do not fall back; a refused write changes nothing.
func TestJudgesByTheToken(t *testing.T) {
	db, stop, err := start(t.Context())
	expect.OK(t, err)
	defer stop()
	for _, w := range []struct {
		token int64
		text  string
		want  error
	}{{5, "a", nil}, {5, "b", nil}, {7, "c", nil}, {5, "d", errFenced}, {6, "e", errFenced}, {7, "f", nil}, {10, "g", nil}, {7, "h", errFenced}} {
		if err := write(t.Context(), db, "x", w.text, w.token); !errors.Is(err, w.want) {
			t.Errorf("%q with token %d: %v, want %v", w.text, w.token, err, w.want)
		}
	}
	if text, err := read(t.Context(), db, "x"); err != nil || text != "g" {
		t.Errorf("PostgreSQL has %q, %v, want %q", text, err, "g")
	}
}
