package dashboard_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
)

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	e := memengine.New()
	defer func() { _ = e.Close() }()
	for field, c := range map[string]struct {
		set         func(*dashboard.Options, int64)
		least, most int64
	}{
		"Rows":     {func(o *dashboard.Options, n int64) { o.Rows = int(n) }, 1, 500},
		"Interval": {func(o *dashboard.Options, n int64) { o.Interval = time.Duration(n) }, int64(time.Millisecond), int64(24 * time.Hour)},
	} {
		for _, v := range []struct {
			n  int64
			ok bool
		}{
			{0, true}, {c.least, true}, {c.most, true}, {c.most + 1, false}, {-1, false}, {math.MinInt, false}, {math.MaxInt, false},
		} {
			o := &dashboard.Options{}
			c.set(o, v.n)
			d, err := dashboard.New(e, o)
			var refused *engine.ArgumentError
			switch {
			case v.ok && err == nil:
				d.Close()
			case v.ok || d != nil || !errors.As(err, &refused) || refused.Package != "dashboard" || refused.What != "Options."+field:
				t.Errorf("%s %d: %v", field, v.n, err)
			}
		}
	}
	var refused *engine.ArgumentError
	if _, err := dashboard.New(nil, nil); !errors.As(err, &refused) || refused.What != "engine" {
		t.Errorf("no engine: %v", err)
	}
}
