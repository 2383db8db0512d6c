package sematest_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"sema"
	"sema/enginetest"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/sematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open is a semaphore that is open until the test ends.
var open = opened.Semaphore

// operator is for operators of a semaphore.
var operator = opened.Operator

// told is a test that keeps what it is told instead of failing.
type told struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	cleanups []func()
}

func (t *told) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}

// Fatalf ends the test, as that of a real one does.
func (t *told) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(t)
}

func (t *told) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// end runs what a test runs at its end, and returns what it was told.
func (t *told) end() []string {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
	t.cleanups = nil
	return t.errors
}

// fatal is what f ends the test with.
func (t *told) fatal(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil && r != t {
			panic(r)
		}
		text = strings.Join(t.errors, "\n")
	}()
	f()
	return ""
}

// An engine that was told nothing keeps every promise.
func TestPromises(t *testing.T) {
	enginetest.Run(t, func(tb testing.TB) enginetest.Store {
		quiet := &told{TB: tb} // its tests leave permits behind on purpose
		engine := sematest.New(quiet)
		tb.Cleanup(func() { _ = engine.Close() })
		return enginetest.Store{Client: func(testing.TB) sema.Engine { return engine }, Virtual: true}
	})
}

// The page for users shows a test of this package.
func TestDocsShowATest(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	expect.OK(t, err)
	source, err := os.ReadFile("program_test.go")
	expect.OK(t, err)
	_, rest, ok := strings.Cut(string(page), "```go\n")
	block, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 || !strings.Contains(string(source), block) {
		t.Errorf("program_test.go does not have what docs/testing.md shows:\n%s", block)
	}
}
