package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pingPostgres asks a database.
type pingPostgres struct {
	pingLook
	pool *pgxpool.Pool
	is   postgres
}

func (g *pingPostgres) trip(ctx context.Context) error {
	_, err := g.pool.Exec(ctx, "SELECT 1")
	return err
}

func (g *pingPostgres) checks(ctx context.Context) (version string, list []check) {
	var user string
	var standby bool
	err := g.pool.QueryRow(ctx, "SELECT current_setting('server_version'), pg_is_in_recovery(), current_user::text").Scan(&version, &standby, &user)
	if err != nil {
		return "", []check{checkOf("ask PostgreSQL about itself", err)}
	}
	primary := check{What: "write: the server is a primary", State: checkOK}
	if standby {
		primary = check{"write", checkMissing, "the server is a standby", "the primary; target_session_attrs=read-write in the URL finds it"}
	}
	return "PostgreSQL " + version, append(append(list, primary), g.table(ctx, user)...)
}

// table checks the table and the rights to it, then notifications.
func (g *pingPostgres) table(ctx context.Context, user string) (list []check) {
	name := g.is.table()
	verbs := []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	var there bool
	var missing []string
	err := g.pool.QueryRow(ctx, `SELECT t IS NOT NULL, array(SELECT verb FROM unnest($2::text[]) WITH ORDINALITY AS list(verb, n)
  WHERE NOT has_table_privilege(t, verb) ORDER BY n) FROM (SELECT to_regclass($1::text) AS t) one`, name, verbs).Scan(&there, &missing)
	what := "find the table " + name
	switch {
	case err != nil:
		c := checkOf(what, err)
		c.Try = fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", cmp.Or(g.is.options.Schema, "public"), identifier(user))
		return []check{c}
	case !there:
		return []check{{what, checkMissing, "there is no such table in the search path", "sema migrate, as a user who may create tables; ?sema_schema= names another schema"}}
	}
	list = append(list, check{What: what, State: checkOK})
	rights := check{What: strings.Join(verbs, ", ") + " in it", State: checkOK}
	if len(missing) > 0 {
		verbs := strings.Join(missing, ", ")
		rights = check{verbs + " in " + name, checkMissing, fmt.Sprintf("the user %s has no right to", user), fmt.Sprintf("GRANT %s ON %s TO %s", verbs, name, identifier(user))}
	}
	return append(list, rights, g.notified(ctx))
}

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

// notifyTime is how long a notification may take on its way.
const notifyTime = 2 * time.Second

// notified checks that a notification arrives. Without, the engine looks at the table again
// and again.
func (g *pingPostgres) notified(ctx context.Context) check {
	const what = "hear NOTIFY"
	risk := func(err error) check {
		return check{what, checkRisk, err.Error(), "sema_listen=HOST:PORT in the URL, the server itself behind a pooler; until then waiters poll"}
	}
	config := g.is.options.Listen
	if config == nil {
		config = g.is.config.ConnConfig
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return risk(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // the answer is there
	channel := "sema_ping_" + strings.ToLower(rand.Text())
	if _, err = c.Exec(ctx, "LISTEN "+channel); err == nil {
		_, err = g.pool.Exec(ctx, "SELECT pg_notify($1, '')", channel)
	}
	if err == nil {
		_, err = c.WaitForNotification(ctx)
	}
	if err != nil {
		return risk(err)
	}
	return check{What: what, State: checkOK}
}
