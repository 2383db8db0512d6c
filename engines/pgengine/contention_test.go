//go:build unix

package pgengine_test

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"sema/engines/pgengine"
	"sema/engines/register"
	"sema/internal/fixture/expect"
)

// Three hundred processes that update one row at once all succeed, and a holder's update goes first. PostgreSQL
// searches for no deadlock among them: one search per process, each blocking all others, would take time cubic
// in their number.
func TestManyProcessesWantOneRow(t *testing.T) {
	const processes = 300
	s := startServer(t, "-c", "max_connections=400", "-c", "deadlock_timeout=200ms", "-c", "log_lock_waits=on", "-c", "logging_collector=on")
	expect.OK(t, step(t, engineAt(t, s.url(), nil)))
	c := s.connect()
	defer func() { _ = c.Close(context.Background()) }()
	_, err := c.Exec(expect.Within(t), "BEGIN; SELECT FROM sema_state FOR UPDATE")
	expect.OK(t, err)
	var all, ready sync.WaitGroup
	var served atomic.Int64
	ready.Add(processes)
	update := func(first bool) {
		own := s.connect()
		defer func() { _ = own.Close(context.Background()) }()
		ready.Done()
		for ctx := expect.Within(t); ctx.Err() == nil; { // a step may have to be repeated
			if pgengine.NewStoreOn(own).Update(ctx, "x", first, func(r register.Row) (register.Next, error) {
				return register.Next{Data: r.Data, Version: r.Version + 1, Until: math.MaxInt64}, nil
			}) == nil {
				if n := served.Add(1); first && n > 10 {
					t.Errorf("a holder was served after %d others", n-1)
				}
				return
			}
		}
		t.Error("an update did not succeed")
	}
	waiting := func() (n int) {
		expect.OK(t, c.QueryRow(expect.Within(t), "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'").Scan(&n))
		return n
	}
	for range processes {
		all.Go(func() { update(false) })
	}
	ready.Wait()
	expect.Until(t, "a queue", func() bool { return waiting() > processes/2 })
	ready.Add(1)
	all.Go(func() { update(true) })
	ready.Wait()
	expect.Until(t, "a queue again", func() bool { return waiting() > processes/2 })
	_, err = c.Exec(expect.Within(t), "ROLLBACK")
	expect.OK(t, err)
	all.Wait()
	logs, err := filepath.Glob(filepath.Join(s.Dir, "data", "log", "*"))
	expect.OK(t, err)
	if len(logs) == 0 {
		t.Error("the server has no log")
	}
	for _, name := range logs {
		log, err := os.ReadFile(name)
		expect.OK(t, err)
		if n := bytes.Count(log, []byte("on advisory lock")); n > 0 {
			t.Errorf("the server searched for a deadlock: %d lines of its log", n)
		}
	}
}
