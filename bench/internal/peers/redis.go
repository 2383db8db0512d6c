package peers

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// connect makes the go-redis client that all Go contestants use: the library's
// defaults, and calls that end with their context.
func connect(ctx context.Context, url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w", err)
	}
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(o)
	if err := rdb.Ping(ctx).Err(); err != nil {
		_ = rdb.Close()
		return nil, fmt.Errorf("no answer from Redis: %w", err)
	}
	return rdb, nil
}
