// Package pgengine keeps semaphores in PostgreSQL (13 or later), through pgx.
//
// There is one row for each semaphore. Every call is one step at the server's clock: a
// single UPDATE if no other process has written since this one's last step, otherwise a
// transaction that locks the row for a round trip. What was granted survives a crash of the
// server, as long as synchronous_commit is on, which is PostgreSQL's default. A release is written
// without waiting for the disk: a crash that forgets it leaves a permit to end with its lease.
//
// A process that waits listens on a connection of its own (LISTEN), one for all
// semaphores, and the server tells it by that connection's lock whether it lives. A process that cannot
// listen looks at the rows that it waits for.
//
// The table has to be there: see [Engine.Migrate]. The engine needs the rights to select,
// insert, update and delete there, and no others.
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
	"sema/engine/register"
)

// Options are what an engine can be told.
type Options struct {
	// Schema is where the table is. Default: the first of search_path that has it.
	Schema string

	// Listen is how to connect to listen, if the pool's own way leads to a pooler that
	// shares connections among transactions. Default: as the pool does.
	Listen *pgx.ConnConfig

	// Poll, 1 ms … 1 h, has the engine never listen, and look so often at a semaphore at the head
	// of whose queue it waits; for where only a pooler can be reached. Default: it listens, and
	// looks every 50 ms while it cannot.
	Poll time.Duration
}

// Engine keeps semaphores in a table. Create it with New or NewSQL and share it.
type Engine struct {
	*register.Engine
	store  *store
	schema string
}

// New makes an engine on a pool, which stays the caller's to close, after the engine. It
// does no I/O. What cannot be used is an *engine.ArgumentError.
//
// The engine uses a connection of the pool for each semaphore that is at work at a moment. It
// interrupts none of them when a caller's context ends: the call is left behind.
func New(pool *pgxpool.Pool, o *Options) (*Engine, error) {
	if pool == nil {
		return nil, &engine.ArgumentError{Package: "pgengine", What: "pool", Value: nil, Want: "a pool, such as pgxpool.New makes"}
	}
	if o == nil {
		o = &Options{}
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

// engine makes an engine that borrows connections, and listens on one of its own.
func (o *Options) engine(lend lender, own connConfig) (*Engine, error) {
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

// connConfig is how to connect to listen.
type connConfig func(context.Context) (*pgx.ConnConfig, error)

// maxSchema is the most bytes in a name of PostgreSQL's.
const maxSchema = 63

// store keeps rows in a table.
type store struct {
	lend  lender
	sql   queries
	known atomic.Bool // that the server is a PostgreSQL
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

// Swap implements register.Store. A row is locked until it is durable, which is no
// matter where only one process writes it. The first row of a name is left to Update.
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
		if errors.Is(err, pgx.ErrNoRows) || code(err) == readOnly { // by default; Update says what it wants
			return nil
		}
		if ok = err == nil; ok {
			s.tell(ctx, c, n.Tell)
		}
		return err
	})
	return now, ok, err
}

// tell wakes other processes. It is a transaction of its own: a COMMIT that notifies takes a lock
// that all such commits of the server share, and one that writes would hold it for the disk.
func (s *store) tell(ctx context.Context, c *pgx.Conn, all []register.Message) {
	if len(all) > 0 {
		b := &pgx.Batch{}
		queueNews(b, all)
		_ = c.SendBatch(ctx, b).Close() // who is not told finds out
	}
}

func queueNews(b *pgx.Batch, all []register.Message) {
	b.Queue(begin)
	for _, m := range all {
		b.Queue(notify, channel(m.Process), m.Text)
	}
	b.Queue(commit)
}

func channel(process string) string { return "sema_" + process }

// Update implements register.Updater: a flight that locks and reads the row, and one
// that writes it, gives it free, and only then waits for the disk.
func (s *store) Update(ctx context.Context, name string, first bool, f func(register.Row) (register.Next, error)) error {
	var refused error
	err := s.with(ctx, func(c *pgx.Conn) error {
		row, err := s.lock(ctx, c, name, first)
		if err != nil {
			return unsent(err)
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

// lock begins a transaction and reads the row, which nobody else writes until its end. A step that has stood in the queue for
// nearly deadlock_timeout comes again, see queueFirst.
func (s *store) lock(ctx context.Context, c *pgx.Conn, name string, first bool) (row register.Row, err error) {
	inQueue, forRow, idle := limits(ctx)
	queue := queueLast
	if first {
		queue = queueFirst
	}
	for end := time.Now().Add(inQueue); ; {
		b := &pgx.Batch{}
		b.Queue(begin)
		b.Queue(queue, name, milliseconds(time.Until(end)), milliseconds(forRow), milliseconds(idle))
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

// write writes the row, ends the transaction, and waits for the disk if it has to.
func (s *store) write(ctx context.Context, c *pgx.Conn, name string, version int64, n register.Next) (err error) {
	b, committed, done := &pgx.Batch{}, false, false
	sql, words := s.sql.insert, values(name, n)
	if version != 0 {
		sql, words = s.sql.update, append(words, version)
	}
	b.Queue(sql, words...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("%d rows of the semaphore were written", tag.RowsAffected())
		}
		return nil
	})
	b.Queue(commit).Exec(func(pgconn.CommandTag) error { committed, done = true, n.Lazy; return nil })
	if !n.Lazy {
		// A transaction that has written something waits for all that was written before
		// it. One that only took a number (pg_current_xact_id) does not.
		b.Queue(begin)
		b.Queue(s.sql.flush)
		b.Queue(commit).Exec(func(pgconn.CommandTag) error { done = true; return nil })
	}
	if len(n.Tell) > 0 {
		queueNews(b, n.Tell)
	}
	switch err = c.SendBatch(ctx, b).Close(); {
	case err == nil || done: // or nobody was told: they find out
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

// with lends f a connection. Its error says what it means.
func (s *store) with(ctx context.Context, f func(*pgx.Conn) error) error {
	var failed error
	err := s.lend(ctx, func(c *pgx.Conn) error {
		if !s.known.Load() {
			if err := isPostgres(ctx, c); err != nil {
				return err
			}
			s.known.Store(true)
		}
		// The pool must not keep to a standby, nor, until it lends that again, to a transaction that has the row.
		if failed = f(c); code(failed) == readOnly || c.PgConn().TxStatus() != 'I' {
			_ = c.Close(ctx)
		}
		if c.IsClosed() {
			// pgx first asks for what is under way to be cancelled, which takes until the server answers again. By then the
			// step that was given up would have the row, and nobody to end it.
			_ = c.PgConn().Conn().Close()
		}
		return nil
	})
	switch {
	case err != nil:
		return unsent(err)
	case failed != nil:
		return explain(failed)
	}
	return nil
}

// isPostgres refuses databases that speak its protocol and lack what the engine needs.
func isPostgres(ctx context.Context, c *pgx.Conn) error {
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
