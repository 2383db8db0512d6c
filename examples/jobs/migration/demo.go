//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5"

	"sema"
	"sema/internal/fixture/local"
)

// standStill is a host that stops after the first step, until somebody lets it
// go on, and has a statement on its way then.
func standStill(ctx context.Context, sem *sema.Semaphore, database string, f fence, say func(string, ...any)) error {
	permit, err := sem.Acquire(ctx)
	if err != nil {
		return err
	}
	work := permit.Context(ctx)
	conn, err := connect(work, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	last := func(tx pgx.Tx) error { return f(ctx, tx, permit) }
	if _, err := carryOut(work, conn, permit.Token(), steps[0], last); err != nil {
		return err
	}
	say("%s", steps[0].name)
	say("stands still")
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-work.Done()
	say("goes on, and stops: %v", context.Cause(work))
	_, err = carryOut(ctx, conn, permit.Token(), steps[1], last)
	say("%s, sent all the same: %v", steps[1].name, err)
	return nil
}

// demo has four hosts migrate.
func demo(ctx context.Context, out io.Writer) (err error) {
	db, err := local.Postgres(ctx)
	if err != nil {
		return err
	}
	defer db.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := func(name string, env ...string) (*local.Process, error) {
		return local.Again(ctx, append(env, "HOST="+name, "DATABASE="+db.Address)...)
	}

	first, err := begin("host 1", "STANDS_STILL=1")
	if err != nil {
		return err
	}
	defer func() { cancel(); first.Wait() }()
	for range 2 { // a step, and that it stands still
		if err := first.Line(out); err != nil {
			return err
		}
	}
	var others []*local.Process
	for i := 2; i <= 4; i++ {
		p, err := begin(fmt.Sprint("host ", i))
		if err != nil {
			return err
		}
		defer func() { cancel(); p.Wait() }()
		others = append(others, p)
		if i == 2 { // it has the permit now, and the next ones wait
			err = p.Line(out)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range others {
		if err := p.Rest(out); err != nil {
			return err
		}
	}
	if err := first.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	return first.Rest(out)
}
