package expect_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sema/lab/expect"
)

// told is a test that keeps what it is told.
type told struct {
	testing.TB
	text string
}

func (t *told) Helper()                   {}
func (t *told) Fatal(args ...any)         { t.text = fmt.Sprint(args...); runtime.Goexit() }
func (t *told) Fatalf(f string, a ...any) { t.text = fmt.Sprintf(f, a...); runtime.Goexit() }

// fails is what f ends a test with.
func fails(t *testing.T, f func(testing.TB)) string {
	inner, done := &told{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		f(inner)
	}()
	<-done
	return inner.text
}

func TestWhatIsNotAsExpectedEndsTheTest(t *testing.T) {
	boom := errors.New("boom")
	for want, f := range map[string]func(testing.TB){
		"":                     func(tb testing.TB) { expect.OK(tb, nil); expect.Is(tb, fmt.Errorf("a: %w", boom), boom) },
		"boom":                 func(tb testing.TB) { expect.OK(tb, boom) },
		"error <nil>; want bo": func(tb testing.TB) { expect.Is(tb, nil, boom) },
	} {
		if got := fails(t, f); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("failed with %q, want %q", got, want)
		}
	}
}

func TestUntilWaitsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		expect.Until(t, "half of it", func() bool { return time.Since(began) >= expect.Patience/2 })
		if got := fails(t, func(tb testing.TB) { expect.Until(tb, "never", func() bool { return false }) }); got != "never: not so after 1m0s" {
			t.Error(got)
		}
	})
}
