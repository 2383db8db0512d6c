package watchdog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWaitEndsWhenItsTimeHasPassed(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Millisecond, 25 * time.Millisecond: 25 * time.Millisecond, 100 * time.Millisecond: 100 * time.Millisecond,
		5 * time.Second: 5 * time.Second, 0: 0, -1: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, stop := Within(t.Context(), d)
			defer stop()
			<-ctx.Done()
			if got := time.Since(began); got != want {
				t.Errorf("%v ended after %v", d, got)
			}
		})
	}
}

func TestAWaitEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(t.Context(), 35*time.Millisecond)
		defer cancel()
		began := time.Now()
		ctx, stop := Within(parent, time.Second)
		defer stop()
		<-ctx.Done()
		if got := time.Since(began); got != 35*time.Millisecond {
			t.Errorf("ended after %v", got)
		}
	})
}

// Intervals that end late do not count, however many they are, and each makes the next one twice as long.
func TestLateTimeDoesNotCount(t *testing.T) {
	const ms = time.Millisecond
	now := time.Now()
	w := &waiting{every: Tick, left: 200 * ms, before: now}
	for _, step := range []struct{ passed, left time.Duration }{
		{10 * ms, 190 * ms},
		{20 * ms, 170 * ms}, // late by a Tick
		{20*ms + 1, 170 * ms},
		{30 * ms, 140 * ms},
		{time.Hour, 140 * ms},
		{51 * ms, 140 * ms},
		{81 * ms, 59 * ms},
		{69*ms + 1, 160 * ms}, // the rest is shorter than the next interval
		{160 * ms, 0},
	} {
		now = now.Add(step.passed)
		if w.count(now); w.left != step.left {
			t.Errorf("%v are left after %v, want %v", w.left, step.passed, step.left)
		}
	}
}

// A thousand processes looked at the clock a hundred times a second each. Nothing else ran then.
func TestAWaitLooksSeldom(t *testing.T) {
	for _, late := range []time.Duration{0, Tick, Tick + 1, time.Second} {
		for _, d := range []time.Duration{Tick, 150 * time.Millisecond, 2 * time.Second, time.Hour} {
			now, end, n := time.Now(), time.Now().Add(max(d, longest)), 0
			w := newWaiting(d, now)
			for ; w.left > 0 && now.Before(end); n++ {
				now = now.Add(w.interval() + late)
				w.count(now)
			}
			if n > looks {
				t.Errorf("%d looks in %v, each %v late", n, d, late)
			}
		}
	}
}
