package ground

import (
	"context"
	"math/rand/v2"
	"os"

	"github.com/jackc/pgx/v5"

	"sema/internal/fixture/local"
	"sema/internal/fixture/redistest"
)

// terminate ends connections of the workers'; what is appended says which.
const terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"

// listening are the processes that have the lock of those who listen, who are in no transaction.
const listening = "state = 'idle' AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted)"

// serverFaults are the faults of the server, of its pooler and of its standby.
func (d *database) serverFaults() []Fault {
	whole := func(ctx context.Context) error { return until(ctx, d.whole) }
	again := func(ctx context.Context) error {
		// What the one before left may be there for a moment.
		if err := until(ctx, d.primary.Restart); err != nil {
			return err
		}
		return whole(ctx)
	}
	begin := func(do func(ctx context.Context, r *rand.Rand) error) func(context.Context, *rand.Rand) (Extent, error) {
		return func(ctx context.Context, r *rand.Rand) (Extent, error) { return Extent{}, do(ctx, r) }
	}
	at := func(s func() *local.Server, do func(*local.Server) error) func(context.Context, *rand.Rand) (Extent, error) {
		return begin(func(context.Context, *rand.Rand) error { return do(s()) })
	}
	sql := func(text string) func(context.Context, *rand.Rand) (Extent, error) {
		return begin(func(ctx context.Context, _ *rand.Rand) error { return d.exec(ctx, text) })
	}
	primary := func() *local.Server { return d.primary }
	stills := func(name, note string, s func() *local.Server) Fault {
		return Fault{Name: name, Note: note, Alone: true,
			Begin: at(s, (*local.Server).Freeze),
			End: func(ctx context.Context) error {
				if err := s().Thaw(); err != nil {
					return err
				}
				return whole(ctx)
			}}
	}
	faults := []Fault{
		{Name: "server: kill -9", Note: "of all its processes; synchronous_commit is on", Alone: true,
			Begin: at(primary, (*local.Server).Kill), End: again},
		{Name: "server: stopped and started", Note: "SIGINT, as an upgrade has it", Alone: true,
			Begin: at(primary, func(s *local.Server) error { s.End(); return nil }), End: again},
		{Name: "server: kill -9 of a backend", Note: "PostgreSQL ends all connections, and recovers", Alone: true,
			Begin: begin(d.killBackend), End: whole},
		stills("server: SIGSTOP, SIGCONT", "connections stay open, nothing is answered, then everything at once", primary),
		{Name: "server: pg_terminate_backend", Note: "all connections", Begin: sql(terminate)},
		d.locks("server: rows locked", "SELECT FOR UPDATE of all semaphores, by somebody else", "SELECT FROM sema_state FOR UPDATE"),
		d.locks("server: table locked", "as by a migration", "LOCK TABLE sema_state"),
		{Name: "server: VACUUM FULL", Note: "the table is written anew, and locked meanwhile", Begin: sql("VACUUM FULL sema_state")},
		{Name: "server: TRUNCATE", Note: "all is forgotten", Excuses: forgets, Begin: sql("TRUNCATE sema_state")},
	}
	if d.pooler == nil {
		faults = append(faults,
			Fault{Name: "server: listeners terminated", Note: "the connections on which it tells", Begin: sql(terminate + " AND " + listening)},
			Fault{Name: "server: too many connections", Note: "all are ended, and new ones refused", Alone: true,
				Begin: sql("ALTER ROLE app CONNECTION LIMIT 0; " + terminate),
				End:   func(ctx context.Context) error { return d.exec(ctx, "ALTER ROLE app CONNECTION LIMIT -1") }},
		)
	} else {
		pooler := func() *local.Server { return d.pooler }
		faults = append(faults,
			Fault{Name: "pooler: kill -9", Note: "it is started again at once", Alone: true, Begin: at(pooler, (*local.Server).Kill), End: whole},
			stills("pooler: SIGSTOP, SIGCONT", "", pooler))
	}
	if d.standby != nil {
		faults = append(faults,
			stills("standby: SIGSTOP, SIGCONT", "commits wait for it", func() *local.Server { return d.standby }),
			Fault{Name: "standby: promoted", Note: "the primary is killed by kill -9; another standby follows the next one", Alone: true,
				Begin: begin(func(ctx context.Context, _ *rand.Rand) error {
					if err := d.primary.Kill(); err != nil {
						return err
					}
					return d.promote(ctx, d.sites[:])
				}), End: d.follow},
			Fault{Name: "standby: promoted, one site stays behind", Note: "the old primary lives: split brain", Lasts: long, Alone: true,
				Begin: func(ctx context.Context, r *rand.Rand) (Extent, error) {
					stays := r.IntN(Sites)
					var moved []*redistest.Proxy
					for i, p := range d.sites {
						if i != stays {
							moved = append(moved, p)
						}
					}
					return Extent{}, d.promote(ctx, moved)
				}, End: d.follow})
	}
	return faults
}

// killBackend kills one of the processes that serve a connection.
func (d *database) killBackend(ctx context.Context, _ *rand.Rand) error {
	pid := 0
	err := until(ctx, func(ctx context.Context) error {
		return d.admin(ctx, func(c *pgx.Conn) error {
			return c.QueryRow(ctx, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1").Scan(&pid)
		})
	})
	if err != nil {
		return err
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// locks is a fault that holds a lock for a while, in a transaction of somebody else's.
func (d *database) locks(name, note, sql string) Fault {
	var c *pgx.Conn
	return Fault{Name: name, Note: note, Alone: true,
		Begin: func(ctx context.Context, _ *rand.Rand) (_ Extent, err error) {
			if c, err = pgx.Connect(ctx, d.primary.Address); err == nil {
				_, err = c.Exec(ctx, "BEGIN; "+sql)
			}
			return Extent{}, err
		},
		End: func(ctx context.Context) error { return c.Close(ctx) }}
}

// promote makes the standby a primary, and leads some sites there. The one before is its standby then, in
// name.
func (d *database) promote(ctx context.Context, sites []*redistest.Proxy) error {
	c, err := pgx.Connect(ctx, d.standby.Address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	if _, err := c.Exec(ctx, "SELECT pg_promote(true, 30)"); err != nil {
		return err
	}
	d.primary, d.standby = d.standby, d.primary
	for _, p := range sites {
		p.Forward(d.door())
		p.DropAll()
	}
	return nil
}

// follow ends the old primary, starts a new standby of the present primary, and directs all sites to that
// primary.
func (d *database) follow(ctx context.Context) error {
	_ = d.standby.Kill() // it may be dead
	d.standby.Stop()
	for _, p := range d.sites {
		p.Forward(d.door())
		p.DropAll()
	}
	next, err := local.Standby(ctx, d.primary, d.args...)
	if err != nil {
		d.standby = nil
		return err
	}
	d.standby = next
	return until(ctx, d.whole)
}
