package pgengine

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sema/engine/register"
)

// SQL is what Migrate runs: it makes the table in o.Schema, which has to exist. A nil o means the
// defaults. Running the SQL again changes nothing.
//
// The version is part of the key. So the newest row is the last of its name in the index,
// and what an old transaction elsewhere keeps from being vacuumed is never visited.
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
  heads text[] NOT NULL,   -- processes that are told next, and listen
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

// Migrate makes the table, or checks that the existing one has its columns. It runs through the
// engine's pool, whose user needs the right to create tables for it. A program without that
// right gets the table by an engine of another user, or by Options.SQL. Errors are *engine.Errors.
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

// tableIn is the table's name as SQL has it, with that of its schema in front if that is not "".
func tableIn(schema string) string {
	if schema == "" {
		return table
	}
	return pgx.Identifier{schema, table}.Sanitize()
}

// queries are the statements that name the table.
type queries struct{ read, lock, swap, swapLazily, update, insert, flush, names, sweep, hold string }

const (
	// begin overrides what the database's defaults say.
	begin  = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	commit = "COMMIT"

	now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

	// queueFirst begins a transaction that locks a row; see limits. It commits without waiting for the disk. Those that
	// want the row stand in a queue first: a row has none. Each version that is written would wake all who wait, and
	// by chance one has it next. Nobody stands there for deadlock_timeout, a second by default: then PostgreSQL looks for a
	// deadlock, for each waiter, with all locks of the server locked, and for a time that grows with the cube of the queue.
	//
	// A process without a permit waits in another queue first. So a holder waits only for other holders, and for one of
	// the rest.
	queueFirst = settings + rowQueue
	queueLast  = settings + "pg_advisory_xact_lock(hashtextextended($1, 7366)), " + rowQueue
	settings   = `SELECT set_config('lock_timeout', greatest(1, least($2::text::bigint,
    (extract(epoch FROM current_setting('deadlock_timeout')::interval) * 900)::bigint))::text, true), set_config('idle_in_transaction_session_timeout', $4, true),
  set_config('synchronous_commit', 'off', true), `
	rowQueue = "pg_advisory_xact_lock(hashtextextended($1, 7364)), set_config('lock_timeout', $3, true)"

	notify = "SELECT pg_notify($1, $2)"

	// Whoever listens has this lock; so whoever can have it as well sees that nobody
	// does.
	lockEar    = "SELECT pg_advisory_lock(hashtextextended($1, 7365))"
	lockEarToo = "SELECT pg_is_in_recovery(), pg_try_advisory_lock(hashtextextended($1, 7365))"
	row        = "SELECT " + now + `, coalesce(version, 0), coalesce(at, 0), state, coalesce(heads, '{}'), coalesce(dead, '{}') FROM (SELECT 1) one LEFT JOIN LATERAL (
  SELECT version, at, state, heads, ARRAY(SELECT h FROM unnest(heads) h WHERE pg_try_advisory_xact_lock_shared(hashtextextended(h, 7365))) AS dead
  FROM sema_state WHERE name = $1 ORDER BY version DESC LIMIT 1`
)

// limits are for how long the server lets a step stand in the queue, wait for the row then, and have that while nothing comes,
// as it has them. A process that stops in the midst of a step holds others up for half of a step's time: of a quarter
// of a lease, where leases are short. The server gives up before the client does, which could only close the
// connection.
func limits(ctx context.Context) (inQueue, row, idle time.Duration) {
	left := longest
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	return left * 3 / 5, left / 5, left / 2
}

// milliseconds is a time as the server's settings have it. 0 would be for ever.
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
		names:      in("SELECT name FROM sema_state WHERE until > " + now),
		hold:       in("SELECT " + now + ", version, at, state FROM sema_state WHERE name = $1 ORDER BY version DESC LIMIT 1 FOR SHARE"),
		sweep:      in("DELETE FROM sema_state WHERE until < " + now),
	}
}

// values are the first nine arguments of what writes a row.
func values(name string, n register.Next) []any {
	heads := n.Heads
	if heads == nil {
		heads = []string{}
	}
	return []any{name, n.Version, n.At, n.Until, heads, n.Limit, n.Used, n.Waiting, n.Data}
}
