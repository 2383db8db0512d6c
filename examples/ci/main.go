// Ci runs jobs that need a licence, a GPU and connections to a database at once. All runners that share the
// semaphore together never use more of any than there is, and a job takes all that it needs in one step.
//
//	go run ./examples/ci                          # by itself
//	go run ./examples/ci -redis 127.0.0.1:6379    # with other runners
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"sema"
	"sema/engines/memengine"
	"sema/engines/redisengine"
)

func main() {
	addr := flag.String("redis", "", "share the pools through Redis at this address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	engine, err := openEngine(*addr)
	if err == nil {
		err = show(ctx, engine, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
		os.Exit(1)
	}
}

func openEngine(addr string) (sema.Engine, error) {
	if addr == "" {
		return memengine.New(), nil
	}
	logging.Disable() // what matters comes as an error of sema
	return redisengine.New(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), nil)
}
