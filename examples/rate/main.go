// Rate limits how many requests run at once and how many are sent in a period, beside
// each other: permits of sema, and the rate of redis_rate. It starts a Redis, and
// calls a service of its own, which counts. limits.go and handler.go are what a
// program needs of it.
//
//	go run .
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"sema/engines/redisengine"
	"sema/internal/fixture/local"
)

func main() {
	if err := demo(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rate:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, out io.Writer) error {
	server, err := local.Redis(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	logging.Disable() // what matters comes as an error of sema
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Address, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	engine, err := redisengine.New(rdb, nil)
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	return show(ctx, engine, redis_rate.NewLimiter(rdb), out)
}
