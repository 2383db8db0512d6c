//go:build unix

// Command migration has many hosts migrate one database: one of them does, and
// the others wait and find it done. The first host stands still in the midst, for
// longer than its lease: another goes on, and the database refuses what the first
// one still sends.
//
//	go run ./migration
//
// starts PostgreSQL, where the semaphore is as well, and each host as a process of its own. migrate.go is
// what a program needs of it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/engines/pgengine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	run := demo
	if os.Getenv("HOST") != "" {
		run = host
	}
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var steps = []step{
	{"create users", `CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL)`},
	{"fill users", `INSERT INTO users SELECT i, 'user ' || i FROM generate_series(1, 1000) i`},
	{"index users", `CREATE INDEX ON users (name)`},
}

// host is one of many.
func host(ctx context.Context, out io.Writer) error {
	name, database := os.Getenv("HOST"), os.Getenv("DATABASE")
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	engine, err := pgengine.New(pool, nil)
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	if err := engine.Migrate(ctx); err != nil {
		return err
	}
	sem, err := sema.New(engine, "migration", 1, &sema.Options{Lease: 2 * time.Second, Label: name})
	if err != nil {
		return err
	}
	defer func() { _ = sem.Close() }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	say := func(format string, args ...any) { fmt.Fprintf(out, name+": "+format+"\n", args...) }
	if os.Getenv("STANDS_STILL") != "" {
		return standStill(ctx, sem, database, engine.Hold, say)
	}
	if err := migrate(ctx, sem, database, steps, engine.Hold, func(s step) { say("%s", s.name) }); err != nil {
		return err
	}
	say("the database is up to date")
	return nil
}
