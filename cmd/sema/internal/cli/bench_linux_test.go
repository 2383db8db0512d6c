package cli_test

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// A signal ends a run promptly, and nothing of it is left: no key, no process.
// Keys of others stay.
func TestBenchInterrupted(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	for scenario, signal := range map[string]syscall.Signal{"uncontended": syscall.SIGINT, "hand-off": syscall.SIGINT, "queue": syscall.SIGTERM, "renew": syscall.SIGHUP} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			rdb, ctx := s.Client(), context.Background()
			expect.OK(t, rdb.Set(ctx, "sema:{sema-bench-other}:state", "x", 0).Err())
			j := start(t, s.URL(), "bench", "--json", "--progress", "--scenario", scenario, "--round", "1m", "--waiters", "50", "--goroutines", "4", "--permits", "50")
			j.says("bench: " + scenario)
			expect.Until(t, "keys", func() bool { return rdb.DBSize(ctx).Val() > 1 || scenario == "renew" })
			j.signal(signal)
			j.exits(128 + int(signal))
			j.dead() // with its other processes, which have the same standard error
			if left := rdb.Keys(ctx, "*").Val(); len(left) != 1 {
				t.Errorf("left: %v", left)
			}
			if said := j.stderr.String(); strings.Contains(said, "cancel") {
				t.Errorf("said: %s", said)
			}
		})
	}
}

// The other processes end with the first, however that ends.
func TestBenchKilled(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	s := redistest.Start(t)
	rdb, ctx := s.Client(), context.Background()
	j := start(t, s.URL(), "bench", "--scenario", "hand-off", "--round", "1m")
	listening := func() bool { return len(rdb.PubSubChannels(ctx, "sema:{sema-bench-*").Val()) > 0 }
	expect.Until(t, "the other process", listening)
	j.signal(syscall.SIGKILL)
	expect.Until(t, "its end", func() bool { return !listening() })
	for _, key := range rdb.Keys(ctx, "*").Val() {
		if rdb.TTL(ctx, key).Val() <= 0 {
			t.Errorf("%s is left for ever", key)
		}
	}
}
