package sema_test

import (
	"context"
	"sync"
	"testing"

	"sema"
	"sema/engine/memengine"
)

// The engine may notify of its end while New is still at it.
func TestNewWhileTheEngineCloses(t *testing.T) {
	for range 200 {
		e := memengine.New()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				s, err := sema.New(e, "x", 1, nil)
				if err != nil {
					return
				}
				if p, err := s.TryAcquire(context.Background()); err == nil {
					_ = p.Release()
				}
				_ = s.Close()
			})
		}
		all.Go(func() { _ = e.Close() })
		all.Wait()
	}
}
