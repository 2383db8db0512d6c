package semagrpc_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"sema"
	"sema/contrib/grpc"
	"sema/engines/memengine"
)

// A server that works at a hundred calls at once, together with all its
// replicas, and lets others wait for a second.
func ExampleNew() {
	sem, err := sema.New(memengine.New(), "reports", 100, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := semagrpc.New(semagrpc.Limit{
		Semaphore: sem,
		Wait:      time.Second,
		Skip:      func(_ context.Context, method string) bool { return method == "/grpc.health.v1.Health/Check" },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limiter.UnaryServer),
		grpc.ChainStreamInterceptor(limiter.StreamServer),
	)
	server.Stop()
	fmt.Println(sem.Close())
	// Output: <nil>
}

// A client that has five calls of each organisation open at once, two of each user of one, and twenty in
// all, whatever the number of its processes.
func ExampleLimiter_UnaryClient() {
	sem, err := sema.New(memengine.New(), "shards", 20, &sema.Options{Caps: sema.Caps{5, 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := semagrpc.New(semagrpc.Limit{
		Semaphore: sem,
		Key:       func(ctx context.Context, _ string) []string { return callerOf(ctx) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(limiter.UnaryClient),
		grpc.WithChainStreamInterceptor(limiter.StreamClient),
	}
	fmt.Println(sem.Close())
	// Output: <nil>
}

func callerOf(context.Context) []string { return []string{"acme", "alice"} }
