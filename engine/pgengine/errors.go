package pgengine

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"sema/engine"
)

const (
	readOnly    = "25006" // what a standby says of all that writes
	noRight     = "42501"
	lockTimeout = "55P03"

	otherVersion = "the table sema_state is of another version: sema migrate --print says what it has to be"
	pooler       = "default_query_exec_mode=exec in the URL, as behind PgBouncer"
)

// hints are what to try, for codes of PostgreSQL, or their first two letters.
var hints = map[string]string{
	"42P01":     "make the table sema_state: sema migrate does, and pgengine's Migrate, in a schema that is there",
	"3F000":     "make the schema first, with CREATE SCHEMA; sema migrate and pgengine's Migrate make the table in it",
	noRight:     "GRANT SELECT, INSERT, UPDATE, DELETE ON sema_state to this user",
	"42703":     otherVersion,
	"42804":     otherVersion,
	"42704":     "check the options in the URL",
	"42P05":     pooler,
	"26000":     pooler,
	"28":        "check the user and the password",
	"3D":        "check the name of the database",
	"0A":        "use PostgreSQL 13 or later",
	"XX":        "see the server's log",
	readOnly:    "connect to the primary; target_session_attrs=read-write finds it",
	"53100":     "make room on the server's disk",
	"53300":     "fewer connections in the pools, or a larger max_connections",
	lockTimeout: "fewer processes on this semaphore, or sema serve in front of the database",
	"57014":     "a larger statement_timeout for this user",
}

// lasting are the first letters of codes whose cause does not pass by itself.
var lasting = []string{"42", "3F", "3D", "28", "0A", "XX"}

// unknown are those that may come after a COMMIT has been carried out.
var unknown = []string{"57P", "08", "XX"}

// code is PostgreSQL's of an error; "": it is none of the server's.
func code(err error) string {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// explain says what an error means for the next step.
func explain(err error) *engine.Error {
	if known := (*engine.Error)(nil); errors.As(err, &known) {
		return known
	}
	is := code(err)
	begins := func(s string) bool { return strings.HasPrefix(is, s) }
	e := &engine.Error{Err: err, Temporary: true}
	if is == "" {
		e.NotExecuted = pgconn.SafeToRetry(err)
		if dial := (*pgconn.ConnectError)(nil); errors.As(err, &dial) {
			e.Hint = "check that the server runs and the address is right"
		}
	} else {
		e.NotExecuted, e.Temporary = !slices.ContainsFunc(unknown, begins), !slices.ContainsFunc(lasting, begins)
		e.Hint = cmp.Or(hints[is], hints[is[:2]])
	}
	return e
}

// unsent explains an error of something that has changed nothing.
func unsent(err error) *engine.Error {
	e := explain(err)
	e.NotExecuted = true
	return e
}
