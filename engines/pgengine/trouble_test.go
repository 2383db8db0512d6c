//go:build unix

package pgengine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/engine"
	"sema/engines/pgengine"
	"sema/engines/register"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/fixture/stall"
	"sema/internal/protocol"
)

// stalledRole is a process that stops during a step, at the server with the address in its argument.
const stalledRole = "pgengine: stalled during a step"

func stallInStep(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
	defer cancel()
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = pgengine.NewStore(pool, "").Update(ctx, "x", false, func(r register.Row) (register.Next, error) {
		fmt.Println("locked")
		_, err := child.Order()
		return register.Next{Data: r.Data, Version: r.Version + 1}, err
	})
	fmt.Println("done", err == nil)
	return nil
}

// A process that stalls while it has the row's lock delays others for some seconds, and its
// step changes nothing afterwards.
func TestAProcessThatStallsDuringAStep(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	sem := semAt(t, engineAt(t, s.url(), nil), "a")
	p, err := sem.Acquire(expect.Within(t))
	expect.OK(t, err)
	before := versionOf(t, s)
	process := child.Run(t, stalledRole, s.url())
	process.Says("locked")
	expect.OK(t, process.Stop())
	began := time.Now()
	if err := p.Release(); err != nil { // the client repeats it until it succeeds
		t.Log(err)
	}
	q, err := sem.Acquire(expect.Within(t))
	expect.OK(t, err)
	took := time.Since(began)
	t.Logf("others went on after %v", took.Round(100*time.Millisecond))
	if took > 10*time.Second {
		t.Errorf("others went on after %v", took)
	}
	expect.OK(t, process.Continue())
	process.Tell("go on")
	executed := true
	process.Says("done", &executed)
	if after := versionOf(t, s); executed || after <= before+1 {
		t.Errorf("the stalled process's step was executed: %v; version %d, before %d", executed, after, before)
	}
	expect.OK(t, q.Release())
}

// The server ends a step that waits too long for a locked row, before the client's time limit. So
// the connection stays open.
func TestARowThatStaysLocked(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) {
		s := startServer(t)
		expect.OK(t, step(t, engineAt(t, s.url(), nil)))
		s.lock()
		var all sync.WaitGroup
		for range 3 { // one waits for the row, the others in the queue behind it
			all.Go(func() {
				pool := poolAt(t, s.url())
				store := pgengine.NewStore(pool, "")
				for range 3 {
					ctx, cancel := context.WithTimeout(expect.Within(t), 4*time.Second)
					err := store.Update(ctx, "x", false, func(r register.Row) (register.Next, error) {
						return register.Next{}, errors.New("the row was not locked")
					})
					cancel()
					var failed *engine.Error
					if !errors.As(err, &failed) || !failed.Temporary || !failed.NotExecuted || !strings.Contains(failed.Hint, "sema serve") {
						t.Errorf("%#v", err)
					}
				}
				if n := pool.Stat().NewConnsCount(); n != 1 {
					t.Errorf("%d connections were made, want 1", n)
				}
			})
		}
		all.Wait()
	})
}

// Whenever a step joins the queue for the last time, the server gives up before the client does, in both queues and at the row.
func TestTheServerGivesUpFirst(t *testing.T) {
	t.Parallel()
	for _, left := range []time.Duration{300 * time.Millisecond, 4 * time.Second, 5 * time.Second} {
		ctx, cancel := context.WithTimeout(context.Background(), left)
		inQueue, lock, _ := pgengine.Limits(ctx)
		cancel()
		for joins := time.Duration(0); joins < inQueue; joins += left / 100 {
			if ends := joins + 2*min(lock, inQueue-joins) + lock; ends > left*4/5 {
				t.Errorf("a step of %v that joins the queue after %v ends after %v", left, joins, ends)
			}
		}
	}
}

// A row that another program has locked is a queue: those who come then wait, although nobody writes the row.
func TestARowThatAnotherProgramHasLocked(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) {
		s := startServer(t)
		expect.OK(t, step(t, engineAt(t, s.url(), nil)))
		defer time.AfterFunc(6*time.Second, s.lock()).Stop()
		var all sync.WaitGroup
		for range 3 { // one waits for the row, the others in the queue behind it
			all.Go(func() {
				sem, err := sema.New(engineAt(t, s.url(), nil), "x", 3, nil)
				expect.OK(t, err)
				defer func() { _ = sem.Close() }()
				_, err = sem.Acquire(expect.Within(t))
				expect.OK(t, err)
			})
		}
		all.Wait()
	})
}

// Concurrent updates of a row happen in the order in which they were started.
func TestUpdatesOfARowAreQueued(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) {
		const processes = 6
		s := startServer(t)
		expect.OK(t, step(t, engineAt(t, s.url(), nil)))
		stores := make([]register.Updater, processes)
		for i := range stores {
			store := pgengine.NewStore(poolAt(t, s.url()), "")
			_, err := store.Read(expect.Within(t), "x") // opens the connection
			expect.OK(t, err)
			stores[i] = store
		}
		unlock := s.lock()
		had := make(chan int, processes)
		var all sync.WaitGroup
		for i, store := range stores {
			all.Go(func() {
				err := store.Update(expect.Within(t), "x", false, func(r register.Row) (register.Next, error) {
					had <- i
					return register.Next{Data: r.Data, Version: r.Version + 1, Until: math.MaxInt64}, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			waitForLock(t, s, i+1)
		}
		unlock()
		all.Wait()
		for want := range processes {
			if got := <-had; got != want {
				t.Errorf("%d updated the row in place of %d", got, want)
			}
		}
	})
}

// A step that ends early leaves no open transaction, which would lock the row until the next use
// of the connection.
func TestNoTransactionStaysOpen(t *testing.T) {
	t.Parallel()
	c := startServer(t).connect()
	ctx, cancel := context.WithCancel(expect.Within(t))
	err := pgengine.NewStoreOn(c).Update(ctx, "x", false, func(register.Row) (register.Next, error) {
		cancel()
		return register.Next{}, context.Canceled
	})
	if expect.Is(t, err, context.Canceled); !c.IsClosed() {
		t.Errorf("the connection's transaction is in state %c", c.PgConn().TxStatus())
	}
}

// closeHook calls over when it is closed.
type closeHook struct {
	net.Conn
	over func()
}

func (c closeHook) Close() error {
	c.over()
	return c.Conn.Close()
}

// A step that the client abandons for lack of an answer loses its connection at once, and not only after
// the server was asked to cancel it. Otherwise the step could lock the row later, and nothing
// would end its transaction.
func TestAnAbandonedStepLosesItsConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	config, err := pgxpool.ParseConfig(s.url())
	expect.OK(t, err)
	cut, end := make(chan struct{}), make(chan struct{})
	dial, first := config.ConnConfig.DialFunc, true
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !first {
			<-end // a request to cancel cannot connect
			return nil, io.EOF
		}
		first = false
		c, err := dial(ctx, network, address)
		return closeHook{c, sync.OnceFunc(func() { close(cut) })}, err
	}
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // after a second: a ping locks nothing
	pool, err := pgxpool.NewWithConfig(expect.Within(t), config)
	expect.OK(t, err)
	t.Cleanup(pool.Close)
	store := pgengine.NewStore(pool, "")
	_, err = store.Read(expect.Within(t), "x")
	expect.OK(t, err)
	expect.OK(t, s.Freeze())
	defer func() { expect.OK(t, s.Thaw()) }()
	ctx, cancel := context.WithTimeout(expect.Within(t), time.Second)
	defer cancel()
	if err := store.Update(ctx, "x", false, nil); err == nil {
		t.Error("the step succeeded on a frozen server")
	}
	select {
	case <-cut:
	case <-time.After(10 * time.Second): // pgx tries to cancel for 15 s
		t.Error("the connection stays open until the server can be asked to cancel the step")
	}
	close(end)
}

func versionOf(tb testing.TB, s *server) int64 {
	tb.Helper()
	row, err := pgengine.NewStore(poolAt(tb, s.url()), "").Read(expect.Within(tb), "x")
	expect.OK(tb, err)
	return row.Version
}

// addressAs creates a user with the rights that the engine needs and one setting. It returns the
// server's address for that user.
func addressAs(tb testing.TB, s *server, user, set string) string {
	query(tb, s, "CREATE ROLE "+user+" LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON sema_state TO "+user+"; ALTER ROLE "+user+" SET "+set)
	return strings.Replace(s.url(), "sema@", user+"@", 1)
}

// A user whose transactions are read-only by default can use semaphores: the engine begins its
// transactions as READ WRITE.
func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	address := addressAs(t, s, "reader", "default_transaction_read_only = on")
	e := engineAt(t, address, nil)
	sem := semAt(t, e, "a")
	for range 20 {
		for _, acquire := range []func(context.Context, ...sema.AcquireOption) (*sema.Permit, error){sem.Acquire, sem.TryAcquire} {
			p, err := acquire(expect.Within(t))
			expect.OK(t, err)
			expect.OK(t, p.Release())
		}
	}
	checkHandOff(t, e, engineAt(t, address, nil))
}

// step asks once for a permit of the semaphore x.
func step(tb testing.TB, e sema.Engine) error {
	tb.Helper()
	s, err := e.Open("x", engine.Client{}, func(protocol.Notification) {})
	expect.OK(tb, err)
	defer func() { _ = s.Close() }()
	_, err = s.Step(expect.Within(tb), protocol.Call{Number: 1, Requests: []protocol.Request{{
		Kind: protocol.Ask, ID: engine.ID{Client: s.Client(), Number: 1, Weight: 1}, Limit: 1, Lease: time.Minute, Ticket: time.Minute, Wait: true,
	}}})
	return err
}

// If a user's statement_timeout ends a step on a locked row, the error is temporary.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	e := engineAt(t, addressAs(t, s, "hasty", "statement_timeout = '500ms'"), nil)
	expect.Until(t, "a step", func() bool { return step(t, e) == nil })
	unlock := s.lock()
	var failed *engine.Error
	if err := step(t, e); !errors.As(err, &failed) || !failed.Temporary || !failed.NotExecuted || !strings.Contains(failed.Hint, "statement_timeout") {
		t.Errorf("%#v", err)
	}
	unlock()
	expect.Until(t, "a step", func() bool { return step(t, e) == nil })
}

// diskFull makes all writes to the table fail like those on a full disk.
const diskFull = `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN RAISE 'could not extend file "base/5/16384": No space left on device' USING ERRCODE = 'disk_full'; END $$;
	CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON sema_state EXECUTE FUNCTION full_disk()`

// On a full disk the error says so. A holder whose renewals fail notices the loss of its permit before
// another client can get the permit.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) {
		s := startServer(t)
		sem := opened.Semaphore(t, engineAt(t, s.url(), nil), "x", 1, &sema.Options{Lease: 5 * time.Second})
		p, err := sem.Acquire(expect.Within(t))
		expect.OK(t, err)
		query(t, s, diskFull)
		e := engineAt(t, s.url(), nil)
		var failed *engine.Error
		if err := step(t, e); !errors.As(err, &failed) || !failed.Temporary || !failed.NotExecuted || !strings.Contains(failed.Hint, "disk") {
			t.Errorf("%#v", err)
		}
		<-p.Context(expect.Within(t)).Done()
		is := stateOf(t, e, "x")
		expect.Is(t, p.Err(), sema.ErrLost)
		if len(is.Holders) != 1 || is.Holders[0].Left <= 0 {
			t.Errorf("the holder noticed the loss only after its lease: %+v", is)
		}
		query(t, s, "DROP TRIGGER full_disk ON sema_state")
		q, err := sem.Acquire(expect.Within(t))
		expect.OK(t, err)
		expect.OK(t, q.Release())
	})
}

// Three hundred processes that update one row at once all succeed, and a holder's update goes first. PostgreSQL
// searches for no deadlock among them: one search per process, each blocking all others, would take time cubic
// in their number.
func TestManyProcessesWantOneRow(t *testing.T) {
	const processes = 300
	s := startServer(t, "-c", "max_connections=400", "-c", "deadlock_timeout=200ms", "-c", "log_lock_waits=on", "-c", "logging_collector=on")
	expect.OK(t, step(t, engineAt(t, s.url(), nil)))
	unlock := s.lock()
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
	for range processes {
		all.Go(func() { update(false) })
	}
	ready.Wait()
	waitForLock(t, s, processes/2+1)
	ready.Add(1)
	all.Go(func() { update(true) })
	ready.Wait()
	waitForLock(t, s, processes/2+1)
	unlock()
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
