// Package engines opens the engine of an example.
package engines

import (
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"sema"
	"sema/engines/memengine"
	"sema/engines/redisengine"
)

// Open opens Redis at an address, or an engine of this process alone if there is none.
func Open(addr string) (engine sema.Engine, end func(), err error) {
	if addr == "" {
		return memengine.New(), func() {}, nil
	}
	logging.Disable() // what matters comes as an error of sema
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	e, err := redisengine.New(rdb, nil)
	return e, func() { _ = e.Close(); _ = rdb.Close() }, err
}
