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

// Intervals that end late do not count, however many they are.
func TestLateTimeDoesNotCount(t *testing.T) {
	const left = 100 * time.Millisecond
	now := time.Now()
	w := &waiting{left: left, before: now}
	for _, step := range []struct{ passed, counts time.Duration }{
		{10 * time.Millisecond, 10 * time.Millisecond},
		{20 * time.Millisecond, 20 * time.Millisecond}, // late by a Tick
		{20*time.Millisecond + 1, 0},
		{time.Hour, 0},
		{21 * time.Millisecond, 0},
		{19 * time.Millisecond, 19 * time.Millisecond},
	} {
		before := w.left
		now = now.Add(step.passed)
		if w.count(now); before-w.left != step.counts {
			t.Errorf("of %v %v count, want %v", step.passed, before-w.left, step.counts)
		}
	}
}
