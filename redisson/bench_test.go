package redisson_test

import (
	"testing"

	"sema/redisson"
)

// BenchmarkAcquireRelease is a pair without contention, with and without
// receipts, to see what these cost.
func BenchmarkAcquireRelease(b *testing.B) {
	for name, o := range map[string]redisson.Options{"receipts": {}, "none": {NoReceipts: true}} {
		b.Run(name, func(b *testing.B) {
			f := setUp(b, o)
			s := counter(b, f.client, "s")
			if _, err := s.TrySetPermits(f.ctx, 1000, 0); err != nil {
				b.Fatal(err)
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := s.TryAcquire(f.ctx, 1); err != nil {
						b.Error(err)
						return
					}
					if err := s.Release(f.ctx, 1); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
