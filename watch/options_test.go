package watch_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"sema/engine"
	"sema/engines/memengine"
	"sema/watch"
)

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	e := memengine.New()
	defer func() { _ = e.Close() }()
	check := func(field string, o *watch.Options, ok bool) {
		t.Helper()
		w, err := watch.New(e, o)
		var refused *engine.ArgumentError
		switch {
		case ok && err == nil:
			w.Close()
		case ok || w != nil || !errors.As(err, &refused) || refused.Package != "watch" || refused.What != "Options."+field:
			t.Errorf("%+v: %v", o, err)
		}
	}
	check("", nil, true)
	check("", &watch.Options{}, true)
	for field, set := range map[string]func(*watch.Options, time.Duration){
		"Interval": func(o *watch.Options, d time.Duration) { o.Interval = d },
		"Fresh":    func(o *watch.Options, d time.Duration) { o.Fresh = d },
		"Rounds":   func(o *watch.Options, d time.Duration) { o.Rounds = d },
		"Linger":   func(o *watch.Options, d time.Duration) { o.Linger = d },
		"Timeout":  func(o *watch.Options, d time.Duration) { o.Timeout = d },
	} {
		for d, ok := range map[time.Duration]bool{
			0: true, time.Millisecond: true, 24 * time.Hour: true,
			1: false, time.Millisecond - 1: false, 24*time.Hour + 1: false, -1: false, math.MinInt64: false, math.MaxInt64: false,
		} {
			o := &watch.Options{}
			set(o, d)
			check(field, o, ok)
		}
	}
	for field, c := range map[string]struct {
		set  func(*watch.Options, int)
		most int
	}{
		"Rate":     {func(o *watch.Options, n int) { o.Rate = n }, 1_000_000_000},
		"Parallel": {func(o *watch.Options, n int) { o.Parallel = n }, 10_000},
		"Open":     {func(o *watch.Options, n int) { o.Open = n }, 1_000_000},
		"Buffer":   {func(o *watch.Options, n int) { o.Buffer = n }, 1_000_000},
	} {
		for n, ok := range map[int]bool{0: true, 1: true, c.most: true, c.most + 1: false, -1: false, math.MinInt: false, math.MaxInt: false} {
			o := &watch.Options{}
			c.set(o, n)
			check(field, o, ok)
		}
	}
	var refused *engine.ArgumentError
	if _, err := watch.New(nil, nil); !errors.As(err, &refused) || refused.What != "engine" {
		t.Errorf("no engine: %v", err)
	}
}
