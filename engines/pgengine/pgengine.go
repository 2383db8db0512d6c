// Package pgengine keeps semaphores in PostgreSQL (13 or later), through pgx.
//
// Each semaphore has one row. Every call is one step at the server's clock: a single
// UPDATE if no other process has written since this one's last step, otherwise a
// transaction that locks the row for a round trip. Grants survive a crash of the server
// if synchronous_commit is on, which is PostgreSQL's default. A release does not wait
// for the disk: if a crash loses it, the permit ends with its lease.
//
// A waiting process listens (LISTEN) on one extra connection for all semaphores. An
// advisory lock of that connection shows the other processes that it is alive. A
// process that cannot listen polls the rows on which it waits.
//
// The table must exist: see [Engine.Migrate]. The engine needs the rights to select,
// insert, update and delete in it, and no others.
package pgengine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sema/engine"
	"sema/engines/register"
)

// Options configure an engine.
type Options struct {
	// Schema is the schema of the table. Default: the first of search_path that has it.
	Schema string

	// Listen configures the listening connection. Set it if the pool connects to a
	// pooler that shares connections among transactions. Default: the pool's own
	// configuration.
	Listen *pgx.ConnConfig

	// Poll is the time between two reads of a row while the process waits first in the
	// queue, range 1 ms … 1 h. With Poll the engine never listens: set it if only a
	// pooler can be reached. Default 0: the engine listens, and polls every 50 ms while
	// it cannot.
	Poll time.Duration
}

// Engine keeps semaphores in a table. Create it with New or NewSQL and share it.
type Engine struct {
	*register.Engine
	store  *store
	schema string
}

// New makes an engine on a pool. The caller closes the pool, after the engine. New does no
// I/O. A nil pool or an option out of range is an *engine.ArgumentError.
//
// Each semaphore uses one connection of the pool during a step. The end of a caller's
// context does not interrupt the step: the call returns and the step continues.
func New(pool *pgxpool.Pool, o *Options) (*Engine, error) {
	if pool == nil {
		return nil, &engine.ArgumentError{Package: "pgengine", What: "pool", Value: nil, Want: "a pool, such as pgxpool.New makes"}
	}
	own := func(ctx context.Context) (*pgx.ConnConfig, error) {
		config := pool.Config() // a copy
		if config.BeforeConnect != nil {
			return config.ConnConfig, config.BeforeConnect(ctx, config.ConnConfig)
		}
		return config.ConnConfig, nil
	}
	return o.engine(lendFrom(pool), own)
}

// engine makes an engine that borrows connections from lend and listens on a connection
// made with own; nil: it polls, unless o.Listen is set.
func (o *Options) engine(lend lender, own connConfig) (*Engine, error) {
	if o == nil {
		o = &Options{}
	}
	if err := engine.ValidateText("schema", o.Schema, maxSchema); err != nil {
		return nil, err
	}
	s := &store{lend: lend, sql: statements(o.Schema)}
	if o.Listen != nil {
		own = func(context.Context) (*pgx.ConnConfig, error) { return o.Listen.Copy(), nil }
	}
	var inner *register.Engine
	var err error
	if o.Poll != 0 || own == nil {
		inner, err = register.New(s, &register.Options{Poll: o.Poll})
	} else {
		inner, err = register.New(&listener{s, own}, nil)
	}
	if err != nil {
		return nil, err
	}
	return &Engine{inner, s, o.Schema}, nil
}

// connConfig returns the configuration of the listening connection.
type connConfig func(context.Context) (*pgx.ConnConfig, error)

// maxSchema is the longest name in PostgreSQL, in bytes.
const maxSchema = 63

// store keeps rows in a table.
type store struct {
	lend    lender
	sql     queries
	checked atomic.Bool // the server is a PostgreSQL
}

// Read implements register.Store.
func (s *store) Read(ctx context.Context, name string) (row register.Row, err error) {
	err = s.with(ctx, func(c *pgx.Conn) error {
		row, err = scan(c.QueryRow(ctx, s.sql.read, name))
		return err
	})
	return row, err
}

func scan(r pgx.Row) (row register.Row, err error) {
	err = r.Scan(&row.Now, &row.Version, &row.At, &row.Data, &row.Heads, &row.Dead)
	return row, err
}

// Swap implements register.Store. It locks the row until it is durable, which does no harm
// while only one process writes it. It leaves the first row of a name to Update.
func (s *store) Swap(ctx context.Context, name string, version int64, n register.Next, from, to int64) (now int64, ok bool, err error) {
	if version == 0 {
		return 0, false, nil
	}
	err = s.with(ctx, func(c *pgx.Conn) error {
		sql := s.sql.swap
		if n.Lazy {
			sql = s.sql.swapLazily
		}
		err := c.QueryRow(ctx, sql, append(values(name, n), version, from, to)...).Scan(&now)
		if errors.Is(err, pgx.ErrNoRows) || code(err) == readOnly { // transactions may be read-only by default; Update's are not
			return nil
		}
		if ok = err == nil; ok {
			s.tell(ctx, c, n.Tell)
		}
		return err
	})
	return now, ok, err
}

// tell sends messages to other processes. It uses a separate transaction: a COMMIT with
// notifications takes one lock for the whole server, and would hold it during a write to
// disk.
func (s *store) tell(ctx context.Context, c *pgx.Conn, all []register.Message) {
	if len(all) > 0 {
		b := &pgx.Batch{}
		queueMessages(b, all)
		_ = c.SendBatch(ctx, b).Close() // the clients of a lost message ask again
	}
}

func queueMessages(b *pgx.Batch, all []register.Message) {
	b.Queue(begin)
	for _, m := range all {
		b.Queue(notify, channel(m.Process), m.Text)
	}
	b.Queue(commit)
}

func channel(process string) string { return "sema_" + process }

// Update implements register.Updater. It sends one batch to lock and read the row, and a
// second one to write and unlock it. Only then it waits for the disk.
func (s *store) Update(ctx context.Context, name string, first bool, f func(register.Row) (register.Next, error)) error {
	var refused error
	err := s.with(ctx, func(c *pgx.Conn) error {
		row, err := s.lock(ctx, c, name, first)
		if err != nil {
			return notExecuted(err)
		}
		n, err := f(row)
		if err != nil {
			refused = err
			rollBack(ctx, c)
			return nil
		}
		return s.write(ctx, c, name, row.Version, n)
	})
	if refused != nil {
		return refused
	}
	return err
}

// lock begins a transaction, and locks and reads the row. After nearly deadlock_timeout in
// the queue it leaves and joins it again, see queueFirst.
func (s *store) lock(ctx context.Context, c *pgx.Conn, name string, first bool) (row register.Row, err error) {
	inQueue, each, idle := limits(ctx)
	queue := queueLast
	if first {
		queue = queueFirst
	}
	for end := time.Now().Add(inQueue); ; {
		b := &pgx.Batch{}
		b.Queue(begin)
		b.Queue(queue, name, milliseconds(min(each, time.Until(end))), milliseconds(each), milliseconds(idle))
		b.Queue(s.sql.lock, name).QueryRow(func(r pgx.Row) (err error) {
			row, err = scan(r)
			return err
		})
		if err = c.SendBatch(ctx, b).Close(); err == nil {
			return row, nil
		}
		rollBack(ctx, c)
		if code(err) != lockTimeout || time.Now().After(end) {
			return row, err
		}
	}
}

// write writes the row, commits, and waits for the disk unless the step is lazy.
func (s *store) write(ctx context.Context, c *pgx.Conn, name string, version int64, n register.Next) (err error) {
	b, committed, done := &pgx.Batch{}, false, false
	sql, args := s.sql.insert, values(name, n)
	if version != 0 {
		sql, args = s.sql.update, append(args, version)
	}
	b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("%d rows of the semaphore were written", tag.RowsAffected())
		}
		return nil
	})
	b.Queue(commit).Exec(func(pgconn.CommandTag) error { committed, done = true, n.Lazy; return nil })
	if !n.Lazy {
		// The COMMIT of a transaction that has written waits until all earlier writes are
		// on disk. A transaction that only has an id (pg_current_xact_id) does not wait.
		b.Queue(begin)
		b.Queue(s.sql.flush)
		b.Queue(commit).Exec(func(pgconn.CommandTag) error { done = true; return nil })
	}
	if len(n.Tell) > 0 {
		queueMessages(b, n.Tell)
	}
	switch err = c.SendBatch(ctx, b).Close(); {
	case err == nil || done: // only the messages may have failed
		return nil
	case committed:
		e := explain(err)
		e.NotExecuted = false
		err = e
	}
	rollBack(ctx, c)
	return err
}

// rollBack ends a transaction. A connection that cannot do so is closed.
func rollBack(ctx context.Context, c *pgx.Conn) {
	_, _ = c.Exec(ctx, "ROLLBACK")
}

// Names implements register.Store.
func (s *store) Names(ctx context.Context) (names []string, err error) {
	err = s.with(ctx, func(c *pgx.Conn) error {
		rows, err := c.Query(ctx, s.sql.names)
		if err == nil {
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	return names, err
}

// Sweep implements register.Store.
func (s *store) Sweep(ctx context.Context) error {
	return s.with(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, s.sql.sweep)
		return err
	})
}

// with calls f with a connection of the pool. Its error is an *engine.Error.
func (s *store) with(ctx context.Context, f func(*pgx.Conn) error) error {
	var failed error
	err := s.lend(ctx, func(c *pgx.Conn) error {
		if !s.checked.Load() {
			if err := checkPostgres(ctx, c); err != nil {
				return err
			}
			s.checked.Store(true)
		}
		// Close connections to a standby, and those with an open transaction: it would
		// hold the row until the next use of the connection.
		if failed = f(c); code(failed) == readOnly || c.PgConn().TxStatus() != 'I' {
			_ = c.Close(ctx)
		}
		if c.IsClosed() {
			// pgx keeps the socket until it has asked the server to cancel the statement,
			// which may take until the server answers again. Meanwhile the abandoned step
			// could lock the row, and nothing would end its transaction.
			_ = c.PgConn().Conn().Close()
		}
		return nil
	})
	switch {
	case err != nil:
		return notExecuted(err)
	case failed != nil:
		return explain(failed)
	}
	return nil
}

// checkPostgres refuses databases that speak PostgreSQL's protocol but lack features that
// the engine needs.
func checkPostgres(ctx context.Context, c *pgx.Conn) error {
	version := ""
	if err := c.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		return err
	}
	for _, other := range []string{"CockroachDB", "-YB-"} {
		if strings.Contains(version, other) {
			return &engine.Error{NotExecuted: true, Err: fmt.Errorf("not a PostgreSQL: %s", version), Hint: "use PostgreSQL 13 or later"}
		}
	}
	return nil
}
