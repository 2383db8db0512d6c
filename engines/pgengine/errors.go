package pgengine

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"sema/engine"
)

const (
	readOnly    = "25006" // a standby's error for every write
	noRight     = "42501"
	lockTimeout = "55P03"

	otherVersion = "the table sema_state is of another version: sema migrate --print shows the right columns"
	pooler       = "default_query_exec_mode=exec in the URL, as behind PgBouncer"
)

// hints says what to try, by PostgreSQL's error code or the code's first two letters.
var hints = map[string]string{
	"42P01":     "create the table sema_state with sema migrate or pgengine's Migrate; the schema must exist",
	"3F000":     "create the schema first, with CREATE SCHEMA, and then the table with sema migrate or pgengine's Migrate",
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
	"53100":     "free some space on the server's disk",
	"53300":     "fewer connections in the pools, or a larger max_connections",
	lockTimeout: "fewer processes on this semaphore, or sema serve in front of the database",
	"57014":     "a larger statement_timeout for this user",
}

// permanent are the first letters of the codes of errors that do not pass by themselves.
var permanent = []string{"42", "3F", "3D", "28", "0A", "XX"}

// busy are the codes of a server that works for others first.
var busy = []string{"53300", lockTimeout}

// uncertain are the first letters of the codes of errors that may follow a completed COMMIT.
var uncertain = []string{"57P", "08", "XX"}

// code is PostgreSQL's code of an error; "": the error is not from the server.
func code(err error) string {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// explain makes an *engine.Error, with a hint.
func explain(err error) *engine.Error {
	if known := (*engine.Error)(nil); errors.As(err, &known) {
		return known
	}
	is := code(err)
	begins := func(s string) bool { return strings.HasPrefix(is, s) }
	e := &engine.Error{Err: err, Temporary: true}
	if is == "" {
		e.NotExecuted = pgconn.SafeToRetry(err)
		var certificate *tls.CertificateVerificationError
		switch dial := (*pgconn.ConnectError)(nil); {
		case errors.As(err, &certificate):
			e.Temporary, e.Hint = false, "the server's certificate is not trusted: see sslrootcert and sslmode in the URL"
		case errors.As(err, &dial) && strings.Contains(err.Error(), "server refused TLS connection"):
			e.Temporary, e.Hint = false, "the server speaks no TLS: sslmode=prefer in the URL, or ssl=on at the server"
		case dial != nil:
			e.Hint = "check that the server runs and the address is right"
		case errors.Is(err, context.DeadlineExceeded):
			e.Hint = "see whether the server answers, and whether the pool has a free connection (MaxConns)"
		}
	} else {
		e.NotExecuted, e.Temporary = !slices.ContainsFunc(uncertain, begins), !slices.ContainsFunc(permanent, begins)
		e.Busy = slices.Contains(busy, is)
		e.Hint = cmp.Or(hints[is], hints[is[:2]])
	}
	return e
}

// notExecuted explains an error of an operation that has changed nothing.
func notExecuted(err error) *engine.Error {
	e := explain(err)
	e.NotExecuted = true
	return e
}
