//go:build unix

package pgengine_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/engine"
	"sema/engines/pgengine"
	"sema/engines/register"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/protocol"
)

func query(tb testing.TB, s *server, sql string) {
	tb.Helper()
	c := s.connect()
	defer func() { _ = c.Close(context.Background()) }()
	_, err := c.Exec(expect.Within(tb), sql)
	expect.OK(tb, err)
}

func poolAt(tb testing.TB, address string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), address)
	expect.OK(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

func semAt(tb testing.TB, e sema.Engine, label string) *sema.Semaphore {
	tb.Helper()
	return opened.Semaphore(tb, e, "x", 1, &sema.Options{Label: label, Lease: 10 * expect.Patience})
}

// checkHandOff tests that a waiting client gets the permit that another one releases.
func checkHandOff(tb testing.TB, first, second sema.Engine) {
	tb.Helper()
	a, b := semAt(tb, first, "a"), semAt(tb, second, "b")
	held, got := waitsBehind(tb, a, b)
	expect.OK(tb, held.Release())
	expect.OK(tb, <-got)
}

// waitsBehind has a hold a permit for which b waits. How b's acquisition and its release went is sent.
func waitsBehind(tb testing.TB, a, b *sema.Semaphore) (held *sema.Permit, went <-chan error) {
	tb.Helper()
	held, err := a.Acquire(expect.Within(tb))
	expect.OK(tb, err)
	got := make(chan error, 1)
	go func() { got <- b.Do(expect.Within(tb), func(context.Context) error { return nil }) }()
	expect.Until(tb, "a waiter", func() bool {
		st, err := a.State(expect.Within(tb))
		return err == nil && len(st.Waiters) == 1
	})
	return held, got
}

// The rights that the package's documentation lists are enough.
func TestMinimalRights(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	query(t, s, "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON sema_state TO app")
	address := strings.Replace(s.url(), "sema@", "app@", 1)
	checkHandOff(t, engineAt(t, address, nil), engineAt(t, address, nil))
	expect.OK(t, pgengine.NewStore(poolAt(t, address), "").Sweep(expect.Within(t)))
}

// A table may be in a schema of its own, whatever its name is.
func TestSchema(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const schema = `odd "name"; $1`
	query(t, s, `CREATE SCHEMA "odd ""name""; $1"; DROP TABLE sema_state`)
	o := &pgengine.Options{Schema: schema}
	first := engineAt(t, s.url(), o)
	for range 2 {
		expect.OK(t, first.Migrate(expect.Within(t)))
	}
	checkHandOff(t, first, engineAt(t, s.url(), o))
}

// The error of a broken database setup has a hint, and says whether it is temporary.
func TestErrorHints(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	query(t, s, "CREATE ROLE nobody LOGIN; CREATE SCHEMA other; CREATE ROLE known LOGIN PASSWORD 'right'")
	hba := filepath.Join(s.Dir, "data", "pg_hba.conf")
	expect.OK(t, os.WriteFile(hba, []byte("local all known scram-sha-256\nlocal all all trust\n"), 0o644))
	query(t, s, "SELECT pg_reload_conf()")
	at := func(user string) string { return strings.Replace(s.url(), "sema@", user+"@", 1) }
	expect.Until(t, "passwords", func() bool {
		c, err := pgx.Connect(expect.Within(t), at("known:wrong"))
		if err == nil {
			_ = c.Close(expect.Within(t))
		}
		return err != nil
	})
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	expect.OK(t, err)
	defer func() { _ = plain.Close() }()
	go func() { // refuses TLS, as a server without it does
		for {
			c, err := plain.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, 8))
			_, _ = c.Write([]byte("N"))
			_ = c.Close()
		}
	}()
	query(t, s, `INSERT INTO sema_state VALUES ('x', 1, 0, 9000000000000000000, '{}', 0, 0, 0, '\xff01')`)
	for _, test := range []struct {
		what, address, hint string
		options             *pgengine.Options
		lasting             bool
	}{
		{"no table", s.url(), "pgengine's Migrate", &pgengine.Options{Schema: "other"}, true},
		{"a typo in the URL", s.url() + "&aplication_name=x", "options in the URL", nil, true},
		{"no schema", s.url(), "pgengine's Migrate", &pgengine.Options{Schema: "none"}, true},
		{"no rights", strings.Replace(s.url(), "sema@", "nobody@", 1), "GRANT", nil, true},
		{"no user", strings.Replace(s.url(), "sema@", "ghost@", 1), "user", nil, true},
		{"no database", strings.Replace(s.url(), "/postgres?", "/ghost?", 1), "database", nil, true},
		{"another release's state", s.url(), "one release", nil, false},
		{"a wrong password", at("known:wrong"), "password", nil, true},
		{"no TLS", "postgres://sema@" + plain.Addr().String() + "/postgres?sslmode=require", "sslmode", nil, true},
		{"no server", "postgres://sema@/postgres?host=/nowhere", "", nil, false},
	} {
		e := engineAt(t, test.address, test.options)
		session, err := e.Open("x", engine.Client{}, func(protocol.Notification) {})
		expect.OK(t, err)
		_, err = session.Step(expect.Within(t), protocol.Call{Number: 1, Requests: []protocol.Request{{
			Kind: protocol.Ask, ID: engine.ID{Client: session.Client(), Number: 1, Weight: 1}, Limit: 1, Lease: time.Minute, Ticket: time.Minute, Wait: true,
		}}})
		var failed *engine.Error
		if !errors.As(err, &failed) || failed.Temporary == test.lasting || !failed.NotExecuted || !strings.Contains(failed.Hint, test.hint) || failed.Name != "x" {
			t.Errorf("%s: %#v", test.what, err)
		}
		t.Logf("%s: %v", test.what, err)
	}
	query(t, s, "CREATE SCHEMA old; CREATE TABLE old.sema_state (name text)")
	for _, test := range []struct{ user, schema, hint string }{
		{"sema", "none", "CREATE SCHEMA"}, {"nobody", "other", "GRANT CREATE"}, {"sema", "old", "another version"},
	} {
		e := engineAt(t, strings.Replace(s.url(), "sema@", test.user+"@", 1), &pgengine.Options{Schema: test.schema})
		err := e.Migrate(expect.Within(t))
		if failed := (*engine.Error)(nil); !errors.As(err, &failed) || failed.Op != "migrate" || !strings.Contains(failed.Hint, test.hint) {
			t.Errorf("migrate %s as %s: %#v", test.schema, test.user, err)
		}
	}
	c := s.connect()
	_, err = c.Exec(expect.Within(t), "PREPARE p AS SELECT 1")
	expect.OK(t, err)
	if _, err := c.Exec(expect.Within(t), "PREPARE p AS SELECT 1"); !strings.Contains(pgengine.Hint(err), "exec_mode") {
		t.Errorf("%v: %q", err, pgengine.Hint(err))
	}
	var argument *engine.ArgumentError
	if _, err := pgengine.New(nil, nil); !errors.As(err, &argument) {
		t.Error(err)
	}
	if _, err := pgengine.New(poolAt(t, s.url()), &pgengine.Options{Poll: -1}); !errors.As(err, &argument) {
		t.Error(err)
	}
}

// A step, a look and a migration that run out of time say what was done, and what to try.
func TestErrorHintsOutOfTime(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	config, err := pgxpool.ParseConfig(s.url())
	expect.OK(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(expect.Within(t), config)
	expect.OK(t, err)
	defer pool.Close()
	c, err := pool.Acquire(expect.Within(t))
	expect.OK(t, err)
	defer c.Release()
	e, err := pgengine.New(pool, nil)
	expect.OK(t, err)
	defer func() { _ = e.Close() }()
	sem := semAt(t, e, "")
	for op, call := range map[string]func(context.Context) error{
		"migrate": e.Migrate,
		"acquire": func(ctx context.Context) error { _, err := sem.Acquire(ctx); return err },
		"state":   func(ctx context.Context) error { _, err := sem.State(ctx); return err },
		"list":    func(ctx context.Context) error { _, err := e.List(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(expect.Within(t), 300*time.Millisecond)
		err := call(ctx)
		cancel()
		var failed *engine.Error
		if !errors.As(err, &failed) || failed.Op != op || !failed.Temporary || !strings.Contains(failed.Hint, "pool") {
			t.Errorf("%s: %v: %#v", op, err, failed)
		}
	}
}

// Sweep removes exactly the rows whose Until has passed.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	store := pgengine.NewStore(poolAt(t, s.url()), "")
	for name, until := range map[string]int64{"over": 1, "not over": 1 << 62} {
		expect.OK(t, store.Update(expect.Within(t), name, false, func(r register.Row) (register.Next, error) {
			return register.Next{Data: []byte("x"), Version: r.Now, Until: until}, nil
		}))
	}
	expect.OK(t, store.Sweep(expect.Within(t)))
	for name, want := range map[string]bool{"over": false, "not over": true} {
		row, err := store.Read(expect.Within(t), name)
		if err != nil || row.Version > 0 != want {
			t.Errorf("%s: %+v, %v", name, row, err)
		}
	}
}

// waits queues a ticket of a client that does nothing after that.
func waits(tb testing.TB, e sema.Engine) {
	tb.Helper()
	s, err := e.Open("x", engine.Client{}, func(protocol.Notification) {})
	expect.OK(tb, err)
	reply, err := s.Step(expect.Within(tb), protocol.Call{Number: 1, Requests: []protocol.Request{{
		Kind: protocol.Ask, ID: engine.ID{Client: s.Client(), Number: 1, Weight: 1}, Limit: 1, Lease: time.Hour, Ticket: time.Hour, Wait: true,
	}}})
	expect.OK(tb, err)
	if got := reply.Answers[0].Status; got != protocol.Queued {
		tb.Fatal(got)
	}
}

// The server knows which waiters are dead, and a release skips them.
func TestADeadWaiterIsSkipped(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	holder := semAt(t, engineAt(t, s.url(), nil), "a")
	p, err := holder.Acquire(expect.Within(t))
	expect.OK(t, err)
	dead := engineAt(t, s.url(), nil)
	waits(t, dead)
	store := pgengine.NewStore(poolAt(t, s.url()), "")
	expect.Until(t, "a waiter that listens", func() bool {
		row, err := store.Read(expect.Within(t), "x")
		return err == nil && len(row.Heads) == 1
	})
	expect.OK(t, dead.Close())
	next := semAt(t, engineAt(t, s.url(), nil), "b")
	got := make(chan error, 1)
	go func() {
		_, err := next.Acquire(expect.Within(t))
		got <- err
	}()
	expect.Until(t, "two waiters", func() bool { return len(stateOf(t, engineAt(t, s.url(), nil), "x").Waiters) == 2 })
	expect.OK(t, p.Release())
	expect.OK(t, <-got)
}

// A waiter is served although the server closes its listening connection.
func TestAListenerThatIsDisconnected(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	holder, waiter := semAt(t, engineAt(t, s.url(), nil), "a"), semAt(t, engineAt(t, s.url(), nil), "b")
	for range 3 {
		p, got := waitsBehind(t, holder, waiter)
		query(t, s, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'")
		expect.OK(t, p.Release())
		expect.OK(t, <-got)
	}
}
