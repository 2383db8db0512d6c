package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/engine/fileengine"
)

// cleanTime bounds the removal of what a run made. A large database takes time
// to be gone through.
const cleanTime = 30 * time.Second

// clean removes what the run made and what it has not yet; also when ctx has
// ended. Nobody may use it any more.
func (b *bench) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	if b.Redis != nil {
		err := eachMaster(ctx, b.Redis, func(ctx context.Context, c *redis.Client) error {
			keys, err := keysOf(ctx, c, b.prefix+"*")
			for len(keys) > 0 && err == nil {
				n := min(len(keys), 1000)
				_, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
					for _, key := range keys[:n] { // one by one: in a cluster they have different slots
						p.Unlink(ctx, key)
					}
					return nil
				})
				keys = keys[n:]
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("bench: keys sema:{%s* may be left until their time to live is over: %w", b.prefix, err)
		}
		return nil
	}
	engine, err := b.Open()
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	if e, ok := engine.(*fileengine.Engine); ok {
		left := filepath.Join(e.Dir(), "sem", b.prefix+"*")
		files, _ := filepath.Glob(left) // the pattern is ours, and right
		for _, f := range files {
			if err := os.Remove(f); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("bench: %s may be left: %w", left, err)
			}
		}
	}
	return nil // memory is gone with its engine
}

// keysOf are the keys of the semaphores of that name, on one server.
func keysOf(ctx context.Context, c *redis.Client, name string) (keys []string, err error) {
	it := c.Scan(ctx, 0, keyPrefix+name, 1000).Iterator()
	for it.Next(ctx) {
		keys = append(keys, it.Val())
	}
	return keys, it.Err()
}

// keyPrefix is what every key of the Redis engine begins with; the
// semaphore's name follows.
const keyPrefix = "sema:{"

// stateKey is a key of a semaphore; all of them are on the same server.
func stateKey(name string) string { return keyPrefix + name + "}:state" }

// eachMaster runs f on every server that has keys.
func eachMaster(ctx context.Context, rdb redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, c)
	}
	return fmt.Errorf("bench: cannot go through the keys of a %T", rdb)
}

// master is the server that a semaphore lives on.
func master(ctx context.Context, rdb redis.UniversalClient, name string) (*redis.Client, error) {
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, stateKey(name))
	case *redis.Client:
		return c, nil
	}
	return nil, fmt.Errorf("bench: cannot ask a %T", rdb)
}
