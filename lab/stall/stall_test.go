package stall

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// outer is a test that keeps what it is told.
type outer struct {
	testing.TB
	failed bool
	log    string
}

func (o *outer) Helper()                 {}
func (o *outer) Log(args ...any)         { o.log += fmt.Sprintln(args...) }
func (o *outer) Logf(f string, a ...any) { o.log += fmt.Sprintf(f+"\n", a...) }
func (o *outer) FailNow()                { o.failed = true; runtime.Goexit() }

// play runs a case on a machine that stalls for so long during each try, and
// returns how often it was tried.
func play(t *testing.T, stalls []time.Duration, f func(c *Case, try int)) (o *outer, tries, cleaned int) {
	o = &outer{TB: t}
	apart(func() {
		run(o, func(c *Case) {
			tries++
			c.Cleanup(func() { cleaned++ })
			f(c, tries)
		}, func() func() (longest, total time.Duration) {
			return func() (longest, total time.Duration) { return stalls[tries-1], stalls[tries-1] }
		})
	})
	return o, tries, cleaned
}

func TestOnlyAStallGivesAnotherTry(t *testing.T) {
	const none, some = 0, time.Second
	wrong := func(c *Case, _ int) { c.Fatal("wrong") }
	first := func(c *Case, try int) {
		if try == 1 {
			c.Error("wrong")
		}
	}
	for name, tt := range map[string]struct {
		stalls []time.Duration
		f      func(c *Case, try int)
		tries  int
		failed bool
		said   string
	}{
		"right":                         {[]time.Duration{some}, func(c *Case, _ int) { c.Log("a figure") }, 1, false, "stall_test.go:"},
		"wrong":                         {[]time.Duration{none}, wrong, 1, true, "wrong"},
		"wrong beside a stall":          {[]time.Duration{some, none}, wrong, 2, true, "try 1 of 3 failed beside stalls of 1s"},
		"wrong beside a stall, once":    {[]time.Duration{some, none}, first, 2, false, "try 1 of 3 failed"},
		"wrong beside a stall, always":  {[]time.Duration{some, some, some}, wrong, 3, true, "try 2 of 3 failed"},
		"over the limit beside a stall": {[]time.Duration{some}, func(c *Case, _ int) { c.Broken("two hold") }, 1, true, "two hold"},
	} {
		t.Run(name, func(t *testing.T) {
			o, tries, cleaned := play(t, tt.stalls, tt.f)
			if tries != tt.tries || cleaned != tries || o.failed != tt.failed || !strings.Contains(o.log, tt.said) {
				t.Errorf("%d tries, want %d; %d cleaned; failed %v, want %v; %q", tries, tt.tries, cleaned, o.failed, tt.failed, o.log)
			}
		})
	}
}

// In virtual time nothing ever stalls.
func TestAWatchdogSeesNoStallWhereThereIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDog()
		time.Sleep(time.Hour)
		if longest, total := d.Stop(); longest != 0 || total != 0 {
			t.Errorf("stalls of %v, the longest %v", total, longest)
		}
	})
}
