package ground

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sema/engines/pgengine"
	"sema/internal/fixture/local"
	"sema/internal/fixture/redistest"
)

// database is a ground of PostgreSQL: a server, and perhaps a standby that has each commit
// first, or a pooler in front.
type database struct {
	base
	args    []string // of a server
	primary *local.Server
	standby *local.Server // nil: there is none
	pooler  *local.Server // nil: there is none
	sites   [Sites]*redistest.Proxy
}

// lookEvery is how often those look behind a pooler who cannot be told.
const lookEvery = 50 * time.Millisecond

func newDatabase(ctx context.Context, kind string, h *host) (_ Ground, err error) {
	d := &database{base: base{host: h, kind: kind}}
	h.Cleanup(d.stop)
	if kind == "postgres-sync" {
		d.args = []string{"-c", "synchronous_standby_names=*"}
	}
	if d.primary, err = local.Postgres(ctx, d.args...); err != nil {
		return nil, err
	}
	switch kind {
	case "postgres-sync":
		d.standby, err = local.Standby(ctx, d.primary, d.args...)
	case "postgres-pgbouncer":
		// PgBouncer 1.18 crashes when a client goes that has cancelled a query.
		if d.pooler, err = local.PgBouncer(ctx, d.primary); err == nil {
			own, cancel := context.WithCancel(context.Background())
			var kept sync.WaitGroup
			kept.Go(func() { d.pooler.Keep(own, d.poolerServes) })
			h.Cleanup(func() { cancel(); kept.Wait() })
		}
	}
	if err != nil {
		return nil, err
	}
	for site := range d.sites {
		d.sites[site] = redistest.StartProxy(h, d.door())
	}
	err = d.admin(ctx, func(c *pgx.Conn) error {
		if _, err := c.Exec(ctx, (*pgengine.Options)(nil).SQL()); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON sema_state TO app"); err != nil {
			return err
		}
		return c.QueryRow(ctx, "SELECT 'PostgreSQL ' || current_setting('server_version')").Scan(&d.version)
	})
	if err != nil {
		return nil, err
	}
	// A step has the row locked for a round trip.
	d.faults = append(d.serverFaults(), networkFaults(d.pooler == nil, true, d.proxies)...)
	return d, d.Settle(ctx)
}

// poolerServes takes in that the pooler has ended, or serves again.
func (d *database) poolerServes(does bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !does {
		d.accidents = append(d.accidents, Accident{Name: "pooler: ended", Begin: time.Now()})
	} else {
		d.accidents[len(d.accidents)-1].End = time.Now()
	}
}

// door is the socket where clients come in.
func (d *database) door() string {
	if d.pooler != nil {
		return filepath.Join(d.pooler.Dir, ".s.PGSQL.6432")
	}
	return filepath.Join(d.primary.Dir, ".s.PGSQL.5432")
}

func (d *database) proxies(site int) []*redistest.Proxy {
	if site < 0 {
		return d.sites[:]
	}
	return d.sites[site : site+1]
}

// Link implements Ground.
func (d *database) Link(site int) Link {
	l := Link{URL: "postgres://app@" + d.sites[site].Addr() + "/postgres?sslmode=disable&connect_timeout=3"}
	if d.pooler != nil {
		l.URL += "&default_query_exec_mode=exec"
		l.Poll = lookEvery
	}
	return l
}

func (d *database) stop() {
	for _, s := range []*local.Server{d.pooler, d.standby, d.primary} {
		if s != nil {
			s.Stop()
		}
	}
}

// admin connects to the primary, past all proxies, with all rights.
func (d *database) admin(ctx context.Context, do func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, d.primary.Address)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.Close(ctx))
}

// exec runs statements of an admin's.
func (d *database) exec(ctx context.Context, sql string) error {
	return d.admin(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
}

// Settle implements Ground.
func (d *database) Settle(ctx context.Context) error {
	err := until(ctx, d.whole)
	for site := range Sites {
		if err == nil {
			err = until(ctx, func(ctx context.Context) error { return d.reached(ctx, site) })
		}
	}
	return err
}

// reached reports nil if a step through a site is carried out.
func (d *database) reached(ctx context.Context, site int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return d.Link(site).step(ctx, ownName)
}

// whole reports nil if the primary takes writes, and its standby, where it has one, follows.
func (d *database) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if d.pooler != nil {
		c, err := pgx.Connect(ctx, d.pooler.Address)
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, "SELECT") // it looks for a server that was away once a second
		if err = errors.Join(err, c.Close(ctx)); err != nil {
			return err
		}
	}
	return d.admin(ctx, func(c *pgx.Conn) error {
		follow := 0
		if err := c.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'").Scan(&follow); err != nil {
			return err
		}
		if d.standby != nil && follow != 1 {
			return fmt.Errorf("%d standbys follow", follow)
		}
		_, err := c.Exec(ctx, "SELECT pg_logical_emit_message(true, 'ground', '')")
		return err
	})
}

// Left implements Ground. A row goes when its time is over, unless the semaphore is pinned or paused.
func (d *database) Left(ctx context.Context) (names []string, err error) {
	err = d.admin(ctx, func(c *pgx.Conn) error {
		rows, err := c.Query(ctx, "SELECT name FROM sema_state WHERE until > extract(epoch FROM now() + interval '1 day') * 1000000")
		if err == nil {
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	return names, err
}
