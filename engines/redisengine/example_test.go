package redisengine_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"sema"
	"sema/engines/redisengine"
)

// While the server is away, go-redis logs dozens of lines a minute. A program that gets
// these errors from sema can switch the log off.
func ExampleNew() {
	logging.Disable()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}) // nobody listens
	defer func() { _ = rdb.Close() }()
	engine, err := redisengine.New(rdb, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = engine.Close() }()
	sem, err := sema.New(engine, "github-api", 5, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()
	_, err = sem.Acquire(context.Background())
	if errors.Is(err, sema.ErrEngine) {
		fmt.Println("Redis is away")
	}
	// Output: Redis is away
}
