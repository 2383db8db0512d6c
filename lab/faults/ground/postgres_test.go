package ground

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
)

type view = func(*testing.T, *database) func(context.Context, Extent) error

// asked is nil once the primary answers a query with true.
func asked(sql string) view {
	return func(_ *testing.T, d *database) func(context.Context, Extent) error {
		return func(ctx context.Context, _ Extent) error {
			return d.admin(ctx, func(c *pgx.Conn) error {
				is := false
				err := c.QueryRow(ctx, sql).Scan(&is)
				if err == nil && !is {
					err = errNotSeen
				}
				return err
			})
		}
	}
}

// silent does not answer in a while.
func silent(_ *testing.T, d *database) func(context.Context, Extent) error {
	return func(ctx context.Context, _ Extent) error {
		short, cancel := context.WithTimeout(ctx, time.Second/2)
		defer cancel()
		if err := d.reached(short, 0); short.Err() == nil {
			return fmt.Errorf("it answers: %v", err)
		}
		return ctx.Err()
	}
}

// gone is a server that lets nobody in.
func gone(_ *testing.T, d *database) func(context.Context, Extent) error {
	return func(ctx context.Context, _ Extent) error {
		if d.reached(ctx, 0) == nil {
			return errNotSeen
		}
		return nil
	}
}

// endedOn is a connection of the server's that is ended; first runs on it beforehand, through site 0.
func endedOn(first string) view {
	return func(t *testing.T, d *database) func(context.Context, Extent) error {
		c, err := pgx.Connect(expect.Within(t), d.Link(0).URL)
		expect.OK(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		if first != "" {
			_, err = c.Exec(expect.Within(t), first)
			expect.OK(t, err)
		}
		pid := 0
		expect.OK(t, c.QueryRow(expect.Within(t), "SELECT pg_backend_pid()").Scan(&pid))
		return asked(fmt.Sprintf("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %d)", pid))(t, d)
	}
}

// cutBefore is a connection through site 0 that is cut.
func cutBefore(t *testing.T, d *database) func(context.Context, Extent) error {
	c, err := pgx.Connect(expect.Within(t), d.Link(0).URL)
	expect.OK(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return func(ctx context.Context, _ Extent) error {
		if c.Ping(ctx) == nil {
			return errNotSeen
		}
		return nil
	}
}

// fallen is a pooler that has cut a connection, and whose end is noted though nobody says who ended it.
func fallen(t *testing.T, d *database) func(context.Context, Extent) error {
	before, cut := len(d.Accidents()), cutBefore(t, d)
	return func(ctx context.Context, e Extent) error {
		if err := cut(ctx, e); err != nil {
			return err
		}
		if after := d.Accidents(); len(after) != before+1 || after[before].End.Before(after[before].Begin) {
			return errNotSeen
		}
		return nil
	}
}

// other is another primary than before.
var other = changed(func(_ context.Context, d *database) (*local.Server, error) { return d.primary, nil })

// rewritten is a table whose file is another one.
var rewritten = changed(func(ctx context.Context, d *database) (n int, err error) {
	err = d.admin(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT pg_relation_filenode('sema_state')::bigint").Scan(&n)
	})
	return n, err
})

// silentDatabase sees the fault by a connection that receives no notifications.
func silentDatabase(t *testing.T, d *database) func(context.Context, Extent) error {
	ctx := expect.Within(t)
	var all []*pgx.Conn
	for site := range Sites {
		c, err := pgx.Connect(ctx, d.Link(site).URL)
		expect.OK(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		_, err = c.Exec(ctx, `LISTEN "sema_silent"`)
		expect.OK(t, err)
		all = append(all, c)
	}
	return func(ctx context.Context, e Extent) error {
		expect.OK(t, d.exec(ctx, "NOTIFY sema_silent"))
		in, out := hit(e)
		for _, site := range in {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			_, err := all[site].WaitForNotification(short)
			cancel()
			if err == nil {
				return fmt.Errorf("site %d heard it", site)
			}
		}
		if out >= 0 {
			_, err := all[out].WaitForNotification(ctx)
			return err
		}
		return nil
	}
}

// anyDatabase are those of all grounds of PostgreSQL.
var anyDatabase = map[string]view{
	"server: kill -9":              gone,
	"server: stopped and started":  gone,
	"server: kill -9 of a backend": endedOn(""),
	"server: SIGSTOP, SIGCONT":     silent,
	"server: pg_terminate_backend": endedOn(""),
	"server: rows locked":          asked("SELECT EXISTS (SELECT FROM pg_locks WHERE mode = 'RowShareLock' AND relation = 'sema_state'::regclass)"),
	"server: table locked":         asked("SELECT EXISTS (SELECT FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation = 'sema_state'::regclass)"),
	"server: VACUUM FULL":          rewritten,
	"server: TRUNCATE":             rewritten,
}

// direct are those where no pooler is between.
var direct = map[string]view{
	"network: subscriptions half open": silentDatabase,
	"server: listeners terminated":     endedOn("LISTEN \"sema_x\"; SELECT pg_advisory_lock(1)"),
	"server: too many connections":     gone,
}

var wiredDatabase = wired(func(ctx context.Context, d *database, site int) error {
	c, err := pgx.Connect(ctx, d.Link(site).URL)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, "SELECT $1::text", strings.Repeat("x", 20_000))
	return errors.Join(err, c.Close(ctx))
})

func TestFaultsOfPostgres(t *testing.T) {
	tryAll(t, "postgres", 2, merged(wiredDatabase, anyDatabase, direct))
}

func TestFaultsOfPostgresWithStandby(t *testing.T) {
	tryAll(t, "postgres-sync", 2, merged(wiredDatabase, anyDatabase, direct, map[string]view{
		"standby: SIGSTOP, SIGCONT":                silent,
		"standby: promoted":                        other,
		"standby: promoted, one site stays behind": other,
	}))
}

func TestFaultsOfPgBouncer(t *testing.T) {
	tryAll(t, "postgres-pgbouncer", 2, merged(wiredDatabase, anyDatabase, map[string]view{"pooler: kill -9": fallen, "pooler: SIGSTOP, SIGCONT": silent}))
}
