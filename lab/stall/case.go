package stall

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	// tries is how often a case is run that stalls disturb.
	tries = 3

	// felt is the shortest stall, or sum of stalls, that can explain a failure.
	felt = 50 * time.Millisecond
)

// Run runs a case that depends on the machine's keeping time. Should it fail, and
// the machine have stood still meanwhile, it is run again, at most three times in
// all; the test's log says so. A case that fails without a stall fails at once,
// and so does one that calls Broken.
//
// What f is given may be used as the test's own TB; it has no subtests.
func Run(t testing.TB, f func(tb *Case)) {
	t.Helper()
	run(t, f, func() func() (longest, total time.Duration) { return NewDog().Stop })
}

// run is Run with another watchdog: watch starts one, and returns how to stop it.
func run(t testing.TB, f func(tb *Case), watch func() func() (longest, total time.Duration)) {
	t.Helper()
	for try := 1; ; try++ {
		stop := watch()
		c := &Case{TB: t}
		c.run(f)
		longest, total := stop()
		if !c.Failed() {
			c.pass()
			return
		}
		if c.broken || try == tries || total < felt {
			c.pass()
			t.FailNow()
		}
		t.Logf("try %d of %d failed beside stalls of %v, the longest %v; again. It said:\n%s", try, tries, total.Round(time.Millisecond), longest.Round(time.Millisecond), c.text())
	}
}

// Case is one try of a case. What is said to it reaches the test when it counts.
type Case struct {
	testing.TB

	mu       sync.Mutex
	failed   bool
	broken   bool // for whatever reason
	said     []string
	helpers  map[string]bool // by function
	cleanups []func()
}

// Broken fails the case for good: what no stall excuses.
func (c *Case) Broken(format string, args ...any) {
	c.mu.Lock()
	c.broken = true
	c.mu.Unlock()
	c.Errorf(format, args...)
}

// run runs f and its cleanups in a goroutine of its own, which Fatal ends.
func (c *Case) run(f func(*Case)) {
	apart(func() { f(c) })
	for {
		c.mu.Lock()
		last := len(c.cleanups) - 1
		if last < 0 {
			c.mu.Unlock()
			return
		}
		clean := c.cleanups[last]
		c.cleanups = c.cleanups[:last]
		c.mu.Unlock()
		apart(clean)
	}
}

// apart runs f, which may end its goroutine.
func apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// pass passes on what the case said.
func (c *Case) pass() {
	if text := c.text(); text != "" {
		c.TB.Log(text)
	}
}

func (c *Case) text() (all string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.said {
		all += s
	}
	return all
}

func (c *Case) say(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, c.where()+s+"\n")
}

// where is the line that says something: the first that is not of this file, and of
// no helper.
func (c *Case) where() string {
	var pcs [20]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if name := filepath.Base(f.File); name != "case.go" && !c.helpers[f.Function] {
			return fmt.Sprintf("%s:%d: ", name, f.Line)
		}
	}
	return ""
}

// Helper marks its caller as a helper, whose lines are not those that matter.
func (c *Case) Helper() {
	var pcs [1]uintptr
	runtime.Callers(2, pcs[:])
	f, _ := runtime.CallersFrames(pcs[:]).Next()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.helpers == nil {
		c.helpers = map[string]bool{}
	}
	c.helpers[f.Function] = true
}

// Cleanup has f run when the try is over.
func (c *Case) Cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

// Fail marks the try as failed.
func (c *Case) Fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = true
}

// Failed reports whether the try has failed.
func (c *Case) Failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// FailNow marks the try as failed and ends its goroutine.
func (c *Case) FailNow() { c.Fail(); runtime.Goexit() }

// Log and the others do what those of testing.TB do, to the try.
func (c *Case) Log(args ...any)                 { c.say(fmt.Sprint(args...)) }
func (c *Case) Logf(format string, args ...any) { c.say(fmt.Sprintf(format, args...)) }
func (c *Case) Error(args ...any)               { c.say(fmt.Sprint(args...)); c.Fail() }
func (c *Case) Errorf(format string, args ...any) {
	c.say(fmt.Sprintf(format, args...))
	c.Fail()
}
func (c *Case) Fatal(args ...any) { c.say(fmt.Sprint(args...)); c.FailNow() }
func (c *Case) Fatalf(format string, args ...any) {
	c.say(fmt.Sprintf(format, args...))
	c.FailNow()
}
