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
	const left = 200 * time.Millisecond
	now := time.Now()
	w := &waiting{every: Tick, left: left, before: now}
	for _, step := range []struct{ passed, counts time.Duration }{
		{10 * time.Millisecond, 10 * time.Millisecond},
		{20 * time.Millisecond, 20 * time.Millisecond}, // late by a Tick
		{20*time.Millisecond + 1, 0},
		{30 * time.Millisecond, 30 * time.Millisecond},
		{time.Hour, 0},
		{51 * time.Millisecond, 0},
		{81 * time.Millisecond, 81 * time.Millisecond},
		{69*time.Millisecond + 1, 0}, // less was left than an interval
		{160 * time.Millisecond, 160 * time.Millisecond},
	} {
		before := w.left
		now = now.Add(step.passed)
		if w.count(now); before-w.left != step.counts {
			t.Errorf("of %v %v count, want %v", step.passed, before-w.left, step.counts)
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
