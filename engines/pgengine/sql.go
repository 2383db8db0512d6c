package pgengine

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sema/engines/register"
)

// SQL is the SQL that Migrate runs: it creates the table in o.Schema, which must exist. A nil
// o means the defaults. Running the SQL again changes nothing.
//
// The version is part of the key. So the newest row of a name is its last one in the
// index, and a read never visits old row versions that a long transaction keeps from
// being vacuumed.
func (o *Options) SQL() string {
	schema := ""
	if o != nil {
		schema = o.Schema
	}
	return strings.ReplaceAll(`BEGIN;
SELECT pg_advisory_xact_lock(7363);
CREATE TABLE IF NOT EXISTS sema_state (
  name text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  at bigint NOT NULL,      -- time of the last step, in microseconds since 1970
  until bigint NOT NULL,   -- the row may be deleted then
  heads text[] NOT NULL,   -- listening processes at the head of the queue
  lim int NOT NULL,        -- this and the next two are for people
  used bigint NOT NULL,
  waiting int NOT NULL,
  state bytea NOT NULL,
  PRIMARY KEY (name, version)
) WITH (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 2000
);
COMMIT;
`, table, tableIn(schema))
}

// Migrate creates the table, or checks that an existing one has the right columns. It runs
// through the engine's pool, whose user needs the right to create tables. To keep that right
// from the program, run Migrate or Options.SQL as the owner of the schema. Errors are
// *engine.Errors.
func (e *Engine) Migrate(ctx context.Context) error {
	err := e.store.with(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, (&Options{Schema: e.schema}).SQL())
		if err == nil {
			_, err = c.Exec(ctx, "SELECT name, version, at, until, heads, lim, used, waiting, state FROM "+tableIn(e.schema)+" LIMIT 0")
		}
		return err
	})
	if err != nil {
		failed := explain(err)
		failed.Op = "migrate"
		if code(err) == noRight {
			failed.Hint = "migrate as the table's owner, or GRANT CREATE ON SCHEMA to this user"
		}
		return failed
	}
	return nil
}

const table = "sema_state"

// tableIn is the table's name in SQL, qualified with schema unless that is "".
func tableIn(schema string) string {
	if schema == "" {
		return table
	}
	return pgx.Identifier{schema, table}.Sanitize()
}

// queries are the statements that name the table.
type queries struct{ read, lock, swap, swapLazily, update, insert, flush, names, sweep, hold string }

const (
	// begin overrides the database's defaults.
	begin  = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	commit = "COMMIT"

	now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

	// queueFirst begins a transaction that locks a row; see limits. Its commit does not
	// wait for the disk. It first queues for an advisory lock, because PostgreSQL has no
	// queue for a row: each write would wake all waiting transactions, and a random one
	// would get the row.
	//
	// A transaction leaves the queue before deadlock_timeout, one second by default.
	// After that time PostgreSQL searches for a deadlock, for each waiting transaction. The
	// search blocks all locks of the server and takes time cubic in the queue's length.
	//
	// A process without a permit waits in a second queue before. So a holder waits only
	// for other holders and for one other process.
	queueFirst = settings + rowQueue
	queueLast  = settings + "pg_advisory_xact_lock(hashtextextended($1, 7366)), " + rowQueue
	settings   = `SELECT set_config('lock_timeout', greatest(1, least($2::text::bigint,
    (extract(epoch FROM current_setting('deadlock_timeout')::interval) * 900)::bigint))::text, true), set_config('idle_in_transaction_session_timeout', $4, true),
  set_config('synchronous_commit', 'off', true), `
	rowQueue = "pg_advisory_xact_lock(hashtextextended($1, 7364)), set_config('lock_timeout', $3, true)"

	notify = "SELECT pg_notify($1, $2)"

	// A listening process holds this lock. A process that can take it too knows that
	// the other one does not listen.
	lockListener    = "SELECT pg_advisory_lock(hashtextextended($1, 7365))"
	tryLockListener = "SELECT pg_is_in_recovery(), pg_try_advisory_lock(hashtextextended($1, 7365))"

	row = "SELECT " + now + `, coalesce(version, 0), coalesce(at, 0), state, coalesce(heads, '{}'), coalesce(dead, '{}') FROM (SELECT 1) one LEFT JOIN LATERAL (
  SELECT version, at, state, heads, ARRAY(SELECT h FROM unnest(heads) h WHERE pg_try_advisory_xact_lock_shared(hashtextextended(h, 7365))) AS dead
  FROM sema_state WHERE name = $1 ORDER BY version DESC LIMIT 1`
)

// limits are how long a step joins the queue, and how long the server lets it wait for one lock and be idle with the row
// locked. A process that stops during a step delays others for half of a step's time; with short leases that is a quarter of a
// lease. The server gives up before the client, which could only close the connection: one that joins at the last moment
// waits for two queues and for the row, and has a fifth of its time left.
func limits(ctx context.Context) (inQueue, lock, idle time.Duration) {
	left := longest
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	return left * 2 / 5, left / 5, left / 2
}

// milliseconds is a time in the form of the server's settings, at least 1: there, 0 means
// no limit.
func milliseconds(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

// longest is the longest time of a step.
const longest = 5 * time.Second

func statements(schema string) queries {
	in := func(s string) string { return strings.ReplaceAll(s, table, tableIn(schema)) }
	const (
		set = "UPDATE sema_state SET version = $2, at = $3, until = $4, heads = $5, lim = $6, used = $7, waiting = $8, state = $9"
		if1 = " WHERE name = $1 AND version = $10"
		if2 = if1 + " AND " + now + " BETWEEN $11 AND $12 RETURNING " + now
	)
	return queries{
		read:       in(row + ") r ON true"),
		lock:       in(row + " FOR UPDATE) r ON true"),
		swap:       in(set + if2),
		swapLazily: in(set + " FROM (SELECT set_config('synchronous_commit', 'off', true)) lazily" + if2),
		update:     in(set + if1),
		insert:     in("INSERT INTO sema_state (name, version, at, until, heads, lim, used, waiting, state) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
		flush:      "SELECT pg_logical_emit_message(true, 'sema', '')",
		names:      in("SELECT name FROM sema_state WHERE lim > 0 AND until > " + now),
		hold:       in("SELECT " + now + ", version, at, state FROM sema_state WHERE name = $1 ORDER BY version DESC LIMIT 1 FOR SHARE"),
		sweep:      in("DELETE FROM sema_state WHERE until < " + now),
	}
}

// values are the first nine arguments of each statement that writes a row.
func values(name string, n register.Next) []any {
	heads := n.Heads
	if heads == nil {
		heads = []string{}
	}
	return []any{name, n.Version, n.At, n.Until, heads, n.Limit, n.Used, n.Waiting, n.Data}
}
