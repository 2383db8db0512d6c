package measure

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// sweepTime bounds the removal of a run's keys: scanning a large database takes
// time.
const sweepTime = 30 * time.Second

// each runs f on every server that has keys, on one at a time.
func (s Store) each(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	switch c := s.Redis.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		return c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return f(ctx, c)
		})
	case *redis.Client:
		return f(ctx, c)
	}
	return fmt.Errorf("cannot look at a %T", s.Redis)
}

// sample is what the server below a store has done so far, for all its clients, in
// nanoseconds and calls.
type sample struct {
	cpu    int64 // of the thread that runs commands
	script int64 // in scripts, with all that they called
	calls  int64 // of scripts
}

func (s Store) sample(ctx context.Context) (sum sample, err error) {
	if s.Redis == nil {
		return sum, nil
	}
	err = s.each(ctx, func(ctx context.Context, c *redis.Client) error {
		cpu, err := c.InfoMap(ctx, "cpu").Result()
		if err != nil {
			return err
		}
		commands, err := c.InfoMap(ctx, "commandstats").Result() // Redis 6.2 takes one section only
		sum.add(cpu["CPU"], commands["Commandstats"])
		return err
	})
	return sum, err
}

// add reads two sections of INFO. What a script calls is in its time already,
// and counted once more under the name of the command, so only scripts count.
func (s *sample) add(cpu, commands map[string]string) {
	for _, part := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu[part+"_main_thread"], 64)
		if err != nil {
			seconds, _ = strconv.ParseFloat(cpu[part], 64)
		}
		s.cpu += int64(seconds * 1e9)
	}
	for name, value := range commands {
		var calls, usec int64
		if strings.HasPrefix(name, "cmdstat_eval") || strings.HasPrefix(name, "cmdstat_fcall") {
			_, _ = fmt.Sscanf(value, "calls=%d,usec=%d", &calls, &usec)
		}
		s.calls += calls
		s.script += usec * 1000
	}
}

// roundTrip is the median of some PINGs in nanoseconds; 0 without an answer.
func (s Store) roundTrip(ctx context.Context) float64 {
	if s.Redis == nil {
		return 0
	}
	var trips []float64
	for end := time.Now().Add(100 * time.Millisecond); len(trips) < 100 && time.Now().Before(end); {
		began := time.Now()
		if s.Redis.Ping(ctx).Err() != nil {
			return 0
		}
		trips = append(trips, float64(time.Since(began)))
	}
	return SpreadOf(trips...).Median
}

// keys gives all keys that have a text in them to f, in portions.
func (s Store) keys(ctx context.Context, text string, f func(ctx context.Context, c *redis.Client, keys []string) error) error {
	return s.each(ctx, func(ctx context.Context, c *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := c.Scan(ctx, cursor, "*"+text+"*", 1000).Result()
			if err == nil && len(keys) > 0 {
				err = f(ctx, c, keys)
			}
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	})
}

// bytes are those of all keys of a semaphore, each element looked at.
func (s Store) bytes(ctx context.Context, name string) (sum int64, err error) {
	if s.Redis == nil {
		return 0, nil
	}
	err = s.keys(ctx, name, func(ctx context.Context, c *redis.Client, keys []string) error {
		for _, key := range keys {
			n, err := c.MemoryUsage(ctx, key, 0).Result()
			if err != nil && !errors.Is(err, redis.Nil) { // gone since
				return fmt.Errorf("MEMORY USAGE: %w", err)
			}
			sum += n
		}
		return nil
	})
	return sum, err
}

// Sweep removes all keys with the prefix in them, also when ctx has ended.
// Nobody may use them any more.
func (s Store) Sweep(ctx context.Context, prefix string) error {
	if s.Redis == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
	defer cancel()
	err := s.keys(ctx, prefix, func(ctx context.Context, c *redis.Client, keys []string) error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range keys { // one by one: in a cluster they have different slots
				p.Unlink(ctx, key)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("keys with %s in them may be left until their time to live is over: %w", prefix, err)
	}
	return nil
}

// Version is what the server calls redis_version.
func (s Store) Version(ctx context.Context) (string, error) {
	info, err := s.Redis.InfoMap(ctx, "server").Result()
	return info["Server"]["redis_version"], err
}
