//go:build unix

package pgengine_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"sema"
	"sema/engine"
	"sema/engines/pgengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
)

// After Hold the permit stays granted until the transaction ends, even if an operator
// releases it meanwhile.
func TestHold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	first, second := engineAt(t, s.url(), nil), engineAt(t, s.url(), nil)
	a, b := semAt(t, first, "a"), semAt(t, second, "b")
	held, err := a.Acquire(expect.Within(t))
	expect.OK(t, err)
	var committed atomic.Bool
	got := make(chan error, 1)
	go func() {
		p, err := b.Acquire(expect.Within(t))
		switch {
		case err == nil && !committed.Load():
			err = errors.New("granted before the transaction's end")
		case err == nil:
			err = p.Release()
		}
		got <- err
	}()
	expect.Until(t, "a waiter", func() bool { return len(stateOf(t, first, "x").Waiters) == 1 })

	c := s.connect()
	tx, err := c.Begin(expect.Within(t))
	expect.OK(t, err)
	expect.OK(t, first.Hold(expect.Within(t), tx, held))
	operator := opened.Operator(t, second, "x")
	released := make(chan error, 1)
	go func() { released <- operator.Release(expect.Within(t), held.ID()) }()
	waitForLock(t, s, 1)
	committed.Store(true)
	expect.OK(t, tx.Commit(expect.Within(t)))
	expect.OK(t, <-released)
	expect.OK(t, <-got)

	tx, err = c.Begin(expect.Within(t))
	expect.OK(t, err)
	expect.Is(t, first.Hold(expect.Within(t), tx, held), sema.ErrLost)
	expect.OK(t, tx.Rollback(expect.Within(t)))
}

// A permit that is not in the row is lost, even if its process still trusts it.
func TestHoldOfALostPermit(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	e := engineAt(t, s.url(), &pgengine.Options{Poll: expect.Patience})
	elsewhere := engineAt(t, s.url(), &pgengine.Options{Schema: "other"})
	held, err := semAt(t, e, "a").Acquire(expect.Within(t))
	expect.OK(t, err)
	c := s.connect()
	hold := func(e *pgengine.Engine) error {
		return pgx.BeginFunc(expect.Within(t), c, func(tx pgx.Tx) error { return e.Hold(expect.Within(t), tx, held) })
	}
	expect.OK(t, hold(e))
	var failed *engine.Error
	if err := hold(elsewhere); !errors.As(err, &failed) || failed.Op != "hold" || failed.Name != "x" || failed.Hint == "" {
		t.Error(err)
	}
	query(t, s, "DELETE FROM sema_state")
	expect.Is(t, hold(e), sema.ErrLost)
	_ = held.Release()
	expect.Is(t, hold(e), sema.ErrReleased)
}

// waitForLock returns when so many transactions wait for a lock.
func waitForLock(tb testing.TB, s *server, many int) {
	tb.Helper()
	c := s.connect()
	expect.Until(tb, "waiting transactions", func() bool {
		n := 0
		expect.OK(tb, c.QueryRow(expect.Within(tb), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n))
		return n >= many
	})
}
