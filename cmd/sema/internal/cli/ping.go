package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
)

const pingHelp = `Ask the engine: does it answer, which version is it, how long does an answer
take, and may this connection do what sema needs? Semaphores stay as they are.

  sema ping --url redis://127.0.0.1:6379

Each line about a need begins with one of
  ok       sema has it
  risk     sema works, but can lose permits or speed
  unknown  this connection cannot find out
  missing  sema does not work, or not all of it; the exit code is 69

A server with an audit log may write a line about what the token has no right to.`

func (p *program) pingCommand() *cobra.Command {
	cmd := p.newCommand("ping [flags]", "Check the engine: answer time, version, rights", pingHelp,
		func(cmd *cobra.Command, _ []string) error { return p.ping(cmd.Context()) })
	p.jsonFlag(cmd, `ping prints an object:
  engine (file, redis, sentinel, cluster, postgres, http), address (without
    secrets), version ("": the engine does not tell it; of files the type of the
    file system), round_trip_seconds (median of nine looks; 0: all failed)
  checks: list of what, state (ok, risk, unknown, missing), detail, try`)
	return cmd
}

// The states of a check.
const (
	checkOK      = "ok"
	checkRisk    = "risk"
	checkUnknown = "unknown"
	checkMissing = "missing"
)

// check is one need of sema, and whether an engine meets it.
type check struct {
	What   string `json:"what"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Try    string `json:"try"`
}

type pingJSON struct {
	Engine    string  `json:"engine"`
	Address   string  `json:"address"`
	Version   string  `json:"version"`
	RoundTrip float64 `json:"round_trip_seconds"`
	Checks    []check `json:"checks"`
}

// pingPrefix begins the name of a semaphore that nobody uses.
const pingPrefix = "sema-ping-"

// pingTrips is how many answers are timed; an odd number.
const pingTrips = 9

func (p *program) ping(ctx context.Context) error {
	at, err := p.open(defaultLease)
	if err != nil {
		return err
	}
	defer at.close()
	ctx, cancel := context.WithTimeout(ctx, 2*callTime)
	defer cancel()
	name := pingPrefix + strings.ToLower(rand.Text()[:8])
	o, err := sema.Operate(at.Engine, name)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // the answer is there
	trip, failed := medianTrip(ctx, o)
	failed = unreachable("ping", "", failed)
	if failure, ok := errors.AsType[*engine.Error](failed); ok && failure.Temporary {
		return failed
	}
	doc := pingJSON{Engine: at.kind, Address: at.shown(), RoundTrip: trip.Seconds()}
	switch at.kind {
	case "file":
		doc.Version, doc.Checks = pingFiles(at.dir, name)
	case "http":
		c, err := pingServer(ctx, at.Engine, o, failed)
		if err != nil {
			return err
		}
		doc.Checks, failed = []check{c}, nil
	case "postgres":
		doc.Version, doc.Checks = pingPostgres(ctx, at)
	default:
		doc.Version, doc.Checks = pingRedis(ctx, at, name)
	}
	missing := func(c check) bool { return c.State == checkMissing }
	if failed != nil && !slices.ContainsFunc(doc.Checks, missing) {
		doc.Checks = append(doc.Checks, checkOf("look at a semaphore", failed))
	}
	for i := range doc.Checks {
		doc.Checks[i].Detail = p.clean(doc.Checks[i].Detail)
	}
	if err := p.writePing(doc); err != nil {
		return err
	}
	if first := slices.IndexFunc(doc.Checks, missing); first >= 0 {
		c := doc.Checks[first]
		return &exit{exitUnreachable, usage(c.Try, "sema cannot %s here: %s", c.What, c.Detail)}
	}
	return nil
}

// medianTrip times looks at a semaphore that nobody uses. The first one may open a
// connection and does not count.
func medianTrip(ctx context.Context, o *sema.Operator) (time.Duration, error) {
	var all []time.Duration
	for range pingTrips + 1 {
		began := time.Now()
		if _, err := o.State(ctx); !errors.Is(err, sema.ErrNotFound) {
			return 0, err
		}
		all = append(all, time.Since(began))
	}
	all = all[1:]
	slices.Sort(all)
	return all[pingTrips/2], nil
}

// remote are the file systems that other hosts may share.
var remote = []string{"nfs", "cifs", "smb2", "9p", "ceph", "afs", "fuse", "smbfs", "afpfs", "webdav"}

func pingFiles(dir, name string) (version string, list []check) {
	file := filepath.Join(dir, name+".tmp")
	write := checkOf("write files in the directory", cmp.Or(os.WriteFile(file, []byte("sema ping\n"), 0o600), os.Remove(file)))
	if write.State != checkOK {
		write.Try = "file:///dir, a directory of this user on a local disk with room"
	}
	list = append(list, write)
	version = fileSystem(dir)
	if slices.Contains(remote, version) {
		list = append(list, check{"rely on file locks", checkRisk, version + " may be on another host", "file:///dir on a local disk, or another engine"})
	}
	return version, list
}

// pingServer finds out the right of the token, by a call for administrators that changes
// nothing: there is no such semaphore. failed is the error of a look at it.
func pingServer(ctx context.Context, e sema.Engine, o *sema.Operator, failed error) (check, error) {
	c := check{What: "take permits and set limits", State: checkOK}
	if failed != nil {
		if _, err := e.List(ctx); err != nil {
			return c, failed
		}
		c.State, c.Detail = checkUnknown, "the token is for semaphores of other names than "+pingPrefix
		return c, nil
	}
	if err := o.Unpause(ctx); !errors.Is(err, sema.ErrNotFound) {
		c.What, c.Detail = "take permits", err.Error()
		if strings.Contains(c.Detail, "has the right read") {
			c.State, c.Try = checkRisk, "a token with the right use for sema run"
		}
	}
	return c, nil
}

// pingPostgres looks for rights to write. Without the table, or the right to read it, the look
// at a semaphore fails and says so.
func pingPostgres(ctx context.Context, at *openEngine) (version string, _ []check) {
	name, user, standby, lacking := at.pg.table(), "", false, []string{}
	err := at.pool.QueryRow(ctx, `SELECT current_setting('server_version'), pg_is_in_recovery(), current_user::text,
  array(SELECT verb FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS verb WHERE NOT has_table_privilege(to_regclass($1::text), verb))`,
		name).Scan(&version, &standby, &user, &lacking)
	write := checkOf("write to the table "+name, err)
	if standby {
		write.State, write.Detail, write.Try = checkMissing, "the server is a standby", "the primary; target_session_attrs=read-write in the URL finds it"
	}
	if verbs := strings.Join(lacking, ", "); verbs != "" {
		user = pgx.Identifier{user}.Sanitize()
		write.State, write.Detail, write.Try = checkMissing, user+" has no right to "+verbs, fmt.Sprintf("GRANT %s ON %s TO %s", verbs, name, user)
	}
	return strings.TrimSpace("PostgreSQL " + version), []check{write}
}

// checkOf is a check that err failed; nil: it is ok.
func checkOf(what string, err error) check {
	if err == nil {
		return check{What: what, State: checkOK}
	}
	c := check{What: what, State: checkMissing}
	c.Detail, c.Try = engine.WithoutHint(err)
	return c
}

// shown is the address of the engine, without user, password and options.
func (at *openEngine) shown() string {
	return cmp.Or(at.dir, strings.TrimPrefix(at.where(), at.kind+" "))
}

func (p *program) writePing(doc pingJSON) error {
	if p.json {
		return p.writeJSON(doc)
	}
	return p.write("%s", aligned(func(t io.Writer) {
		fmt.Fprintf(t, "engine\t%s %s\nversion\t%s\n", doc.Engine, doc.Address, printable(cmp.Or(doc.Version, "unknown"), 60))
		if doc.RoundTrip > 0 {
			fmt.Fprintf(t, "round trip\t%.2f ms, median of %d\n", doc.RoundTrip*1000, pingTrips)
		}
		for _, c := range doc.Checks {
			line := c.What
			if c.Detail != "" {
				line += ": " + c.Detail
			}
			if c.Try != "" {
				line += ". Try: " + c.Try
			}
			fmt.Fprintf(t, "%s\t%s\n", c.State, line)
		}
	}))
}
