package redisengine_test

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
)

// snapshot measures how long a snapshot blocks the server: the time of one
// part, that is, of one pipeline.
func (c *crowd) snapshot(what string, holders, waiters int) {
	c.t.Helper()
	rdb := connect(c.t, redis.Options{Addr: c.server.Addr(), ReadTimeout: expect.Patience, WriteTimeout: expect.Patience})
	expect.OK(c.t, rdb.Ping(expect.Within(c.t)).Err()) // so that the connection is there
	rdb.AddHook(stopwatch{c})
	d := session(c.t, closing(c.t, rdb), c.name)
	c.measured(what, func() {
		began := time.Now()
		st, err := d.State(expect.Within(c.t))
		expect.OK(c.t, err)
		if len(st.Holders) != holders || len(st.Waiters) != waiters {
			c.t.Errorf("%d hold and %d wait; want %d and %d", len(st.Holders), len(st.Waiters), holders, waiters)
		}
		if c.pid == 0 {
			return
		}
		total := time.Duration(0)
		for _, part := range c.ran {
			total += part
		}
		c.t.Logf("%s: %d parts, for which the server ran %s in all; it took %s", what, len(c.ran), millis(total), millis(time.Since(began)))
	})
}

// stopwatch notes the server's time for each pipeline.
type stopwatch struct{ *crowd }

func (s stopwatch) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s stopwatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer s.watch()()
		return next(ctx, cmd)
	}
}

func (s stopwatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer s.watch()()
		return next(ctx, cmds)
	}
}
