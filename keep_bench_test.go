package sema_test

import (
	"context"
	"testing"
	"time"

	"sema"
	"sema/engines/memengine"
)

func BenchmarkKept(b *testing.B) {
	e := memengine.New()
	defer e.Close()
	s, err := sema.New(e, "x", 8, &sema.Options{Keep: 20 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		p, err := s.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPassed(b *testing.B) {
	e := memengine.New()
	defer e.Close()
	s, err := sema.New(e, "x", 8, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := s.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := p.Release(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkChannel(b *testing.B) {
	c := make(chan struct{}, 8)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c <- struct{}{}
			<-c
		}
	})
}
