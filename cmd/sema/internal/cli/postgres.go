package cli

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"sema/engines/pgengine"
)

const tryPostgres = "postgres://user@host:5432/database, and $PGPASSWORD or ~/.pgpass"

// postgres is what a URL of PostgreSQL says.
type postgres struct {
	config  *pgxpool.Config
	options pgengine.Options
}

// table is the name of the table, as pgengine.SQL has it.
func (is postgres) table() string {
	if is.options.Schema == "" {
		return "sema_state"
	}
	return pgx.Identifier{is.options.Schema, "sema_state"}.Sanitize()
}

// postgres reads the URL, which is pgx's but for the options that begin with sema_.
func (a *address) postgres() (is postgres, err error) {
	wrong := func(what string) error { return usage(tryPostgres, "%s in the URL %s", what, redact(a.raw)) }
	query, err := url.ParseQuery(a.query)
	if err != nil {
		return is, wrong("a query that is none")
	}
	is.options.Schema = query.Get("sema_schema")
	if text := query.Get("sema_poll"); query.Has("sema_poll") {
		if is.options.Poll, err = time.ParseDuration(text); err != nil || is.options.Poll < time.Millisecond || is.options.Poll > time.Hour {
			return is, wrong("?sema_poll= that is not from 1ms to 1h,")
		}
	}
	listen := query.Get("sema_listen")
	for _, own := range []string{"sema_schema", "sema_poll", "sema_listen"} {
		query.Del(own)
	}
	if !query.Has("connect_timeout") {
		query.Set("connect_timeout", "3")
	}
	name, password, ok := strings.Cut(a.user, ":")
	name, err1 := url.PathUnescape(name)
	password, err2 := url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return is, wrong("a % that is not written %25 in user or password")
	}
	user := "" // written anew: an @ in the password may stand there as it is
	if ok {
		user = url.UserPassword(name, password).String() + "@"
	} else if name != "" {
		user = url.User(name).String() + "@"
	}
	options := strings.ReplaceAll(query.Encode(), "+", "%20") // pgx reads + as a plus
	at := func(hosts string) string { return "postgres://" + user + hosts + "/" + a.path + "?" + options }
	// An error's text may quote the password, so it is not passed on.
	if is.config, err = pgxpool.ParseConfig(at(a.hosts[0])); err != nil {
		return is, wrong("user, password, hosts or options that cannot be understood")
	}
	if listen != "" {
		direct, err := pgxpool.ParseConfig(at(listen))
		if err != nil {
			return is, wrong("?sema_listen= that is not host:port,")
		}
		is.options.Listen = direct.ConnConfig
	}
	return is, nil
}

// openPostgres opens the engine in a database.
func openPostgres(a address) (*openEngine, error) {
	is, err := a.postgres()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), is.config) // connects when it is used
	if err != nil {
		return nil, err
	}
	e, err := pgengine.New(pool, &is.options)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &openEngine{Engine: e, address: a, pool: pool, pg: is, close: func() { _ = e.Close(); pool.Close() }}, nil
}

const migrateHelp = `Make the table in which PostgreSQL keeps semaphores, or find that it is there.

  sema migrate --url postgres://admin@db.internal/app
  sema migrate --print | psql app

The user of this command needs the right to create tables. The programs need
only the rights to select, insert, update and delete in this table. With
?sema_schema=S in the URL the table is in that schema. The schema must exist,
and all programs need the same option. --print prints the SQL, for the tool that
makes your other tables.`

func (p *program) migrateCommand() *cobra.Command {
	show := false
	cmd := p.newCommand("migrate [--print]", "Make the table for semaphores in PostgreSQL", migrateHelp, func(cmd *cobra.Command, _ []string) error {
		a, err := p.readURL()
		switch {
		case err != nil:
			return err
		case show && p.rawURL() == "":
			return p.write("%s", (&pgengine.Options{}).SQL())
		case a.kind != "postgres":
			return usage("sema migrate --url postgres://user@host/database", "only PostgreSQL has a table for semaphores")
		}
		at, err := openPostgres(a)
		if err != nil {
			return err
		}
		defer at.close()
		if show {
			return p.write("%s", at.pg.options.SQL())
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
		defer cancel()
		if err := at.Engine.(*pgengine.Engine).Migrate(ctx); err != nil {
			return unreachable("migrate", "", err)
		}
		if p.json {
			return p.writeJSON(map[string]bool{"migrated": true})
		}
		return p.write("the table %s is there\n", at.pg.table())
	})
	cmd.Flags().BoolVar(&show, "print", false, "print the SQL, and do nothing")
	p.jsonFlag(cmd, "migrate prints an object:\n  migrated (true)")
	return cmd
}
