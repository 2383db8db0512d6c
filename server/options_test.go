package server_test

import (
	"errors"
	"math"
	"testing"

	"sema/engine"
	"sema/engines/memengine"
	"sema/server"
)

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	e := memengine.New()
	defer func() { _ = e.Close() }()
	for n, ok := range map[int]bool{0: true, 1: true, 1_000_000: true, 1_000_001: false, -1: false, math.MinInt: false, math.MaxInt: false} {
		s, err := server.New(e, &server.Options{MaxWaiters: n})
		var refused *engine.ArgumentError
		switch {
		case ok && err == nil:
			s.Close()
		case ok || s != nil || !errors.As(err, &refused) || refused.Package != "server" || refused.What != "Options.MaxWaiters" || refused.Value != n:
			t.Errorf("%d: %v", n, err)
		}
	}
	var refused *engine.ArgumentError
	if _, err := server.New(nil, nil); !errors.As(err, &refused) || refused.What != "engine" {
		t.Errorf("no engine: %v", err)
	}
}
