package sema_test

import (
	"errors"
	"sync"
	"testing"

	"sema"
	"sema/engines/memengine"
	"sema/engines/redisengine"
)

// The engine may notify of its end while New is still at it. Whatever is done
// meanwhile succeeds, or says that the engine was closed.
func TestNewWhileTheEngineCloses(t *testing.T) {
	for range 200 {
		e := memengine.New()
		ended := func(what string, err error, also ...error) {
			for _, allowed := range append(also, nil, sema.ErrClosed) {
				if errors.Is(err, allowed) {
					return
				}
			}
			t.Errorf("%s: %v", what, err)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				s, err := sema.New(e, "x", 1, nil)
				ended("New", err)
				if err != nil {
					return
				}
				p, err := s.TryAcquire(t.Context())
				ended("TryAcquire", err, sema.ErrBusy)
				if err == nil {
					ended("Release", p.Release(), sema.ErrLost)
				}
				ended("Close", s.Close())
			})
		}
		all.Go(func() { ended("closing the engine", e.Close()) })
		all.Wait()
	}
}

// An engine that could not be made is refused at once, not at the first call.
func TestAnEngineThatIsNone(t *testing.T) {
	for name, e := range map[string]sema.Engine{"nil": nil, "memengine": (*memengine.Engine)(nil), "redisengine": (*redisengine.Engine)(nil)} {
		for what, try := range map[string]func() error{
			"New":     func() error { _, err := sema.New(e, "x", 1, nil); return err },
			"Operate": func() error { _, err := sema.Operate(e, "x"); return err },
		} {
			var refused *sema.ArgumentError
			if err := try(); !errors.As(err, &refused) || refused.What != "engine" || refused.Value != nil {
				t.Errorf("%s of a nil engine, %s: %v", what, name, err)
			}
		}
	}
}
