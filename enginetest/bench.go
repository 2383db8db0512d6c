package enginetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
)

// Benchmark measures acquire and release on an engine: alone, and with many
// goroutines of one process on one semaphore, with room for all and for few.
// Figures mean something only beside others of the same run.
func Benchmark(b *testing.B, open func(tb testing.TB) Store) {
	for _, c := range []struct{ goroutines, limit int }{{1, 1}, {64, 64}, {64, 8}, {512, 512}} {
		b.Run(fmt.Sprintf("goroutines=%d/limit=%d", c.goroutines, c.limit), func(b *testing.B) {
			engine := open(b).Client(b)
			s, err := sema.New(engine, b.Name(), c.limit, nil)
			expect.OK(b, err)
			defer func() { _ = s.Close() }()
			ctx := context.Background()
			left := atomic.Int64{}
			left.Store(int64(b.N))
			done := make(chan error, c.goroutines)
			b.ReportAllocs()
			b.ResetTimer()
			for range c.goroutines {
				go func() {
					for left.Add(-1) >= 0 {
						p, err := s.Acquire(ctx)
						if err == nil {
							err = p.Release()
						}
						if err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for range c.goroutines {
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
		})
	}
}
