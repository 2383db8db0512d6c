// Command fencing shows two hosts that write to the same row of PostgreSQL, each with a permit. The first one loses its
// permit between its last look at it and its write, and PostgreSQL refuses that write.
//
//	go run ./fencing
//
// starts PostgreSQL. The semaphore may be anywhere: here it is in this process. fence.go is what a program needs of it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/engines/memengine"
	"sema/internal/fixture/local"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	db, stop, err := start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	engine := memengine.New()
	operator, err := sema.Operate(engine, "report")
	if err != nil {
		return err
	}
	defer func() { _ = operator.Close() }()
	sem, err := sema.New(engine, "report", 1, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sem.Close() }()

	first, err := sem.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = first.Release() }() // it is lost by then
	work := first.Context(ctx)
	if err := write(work, db, "report", "the report of host 1", first.Token()); err != nil {
		return err
	}
	fmt.Fprintln(out, "host 1: writes its report, looks at its permit, and stands still")

	// What the end of the lease does to a host that stands still, an operator does here.
	if err := operator.Release(ctx, first.ID()); err != nil {
		return err
	}
	second, err := sem.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = second.Release() }()
	if err := write(second.Context(ctx), db, "report", "the report of host 2", second.Token()); err != nil {
		return err
	}
	fmt.Fprintln(out, "host 2: writes its report")

	<-work.Done()
	fmt.Fprintln(out, "host 1: goes on, and should stop: is its permit lost?", errors.Is(context.Cause(work), sema.ErrLost))
	// With work in place of ctx it would not even be sent.
	fmt.Fprintln(out, "host 1: sends its write all the same:", write(ctx, db, "report", "what host 1 still had to say", first.Token()))
	text, err := read(ctx, db, "report")
	fmt.Fprintf(out, "PostgreSQL has %q\n", text)
	return err
}

// start starts a PostgreSQL with the table.
func start(ctx context.Context) (db *pgxpool.Pool, stop func(), err error) {
	server, err := local.Postgres(ctx)
	if err != nil {
		return nil, nil, err
	}
	if db, err = pgxpool.New(ctx, server.Address); err == nil {
		_, err = db.Exec(ctx, table)
	}
	if err != nil {
		server.Stop()
	}
	return db, func() { db.Close(); server.Stop() }, err
}
