//go:build unix

// Package hosts runs two hosts that write to the same storage, each a process with a
// permit. The first one is stopped between its read and its write, for longer than its
// lease. When it goes on, it still sends the write.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"sema"
	"sema/engines/redisengine"
	"sema/internal/fixture/local"
)

// ErrFenced is the error of a write with a token below the largest that the storage
// has seen.
var ErrFenced = errors.New("refused, for a newer holder was here")

// Store is something that keeps a text.
type Store interface {
	// Change stores what change makes of the text, and the token of the permit under
	// which that is done. It fails with ErrFenced, and changes nothing, if a larger
	// token was stored. Change may be called several times.
	Change(ctx context.Context, token int64, change func(old string) string) error

	// Overwrite stores without reading first.
	Overwrite(ctx context.Context, token int64, text string) error

	// Read returns the text.
	Read(ctx context.Context) (string, error)
}

// Start starts a server of the storage, until stop is called.
type Start func(context.Context) (address string, stop func(), err error)

// Main is one of the hosts if the environment says so. Else it starts Redis, the
// server of the storage, and the hosts, which open the storage at the server's address.
func Main(start Start, open func(address string) (Store, error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	run := func() error { return Demo(ctx, os.Stdout, start) }
	if name := os.Getenv("HOST"); name != "" {
		run = func() error { return host(ctx, name, os.Stdout, open) }
	}
	err := run()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Demo has two hosts write, and prints what they do.
func Demo(ctx context.Context, out io.Writer, start Start) error {
	rdb, err := local.Redis(ctx)
	if err != nil {
		return err
	}
	defer rdb.Stop()
	address, stop, err := start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := func(name string) (*local.Process, error) {
		return local.Again(ctx, "HOST="+name, "REDIS="+rdb.Address, "STORAGE="+address)
	}
	first, err := begin("host 1")
	if err != nil {
		return err
	}
	defer func() { cancel(); first.Wait() }()
	for range 2 { // that it stored, and that it stands still
		if err := first.Line(out); err != nil {
			return err
		}
	}
	second, err := begin("host 2")
	if err != nil {
		return err
	}
	if err := second.Rest(out); err != nil {
		return err
	}
	if err := first.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	return first.Rest(out)
}

// host is one of them. Host 1 stands still.
func host(ctx context.Context, name string, out io.Writer, open func(address string) (Store, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store, err := open(os.Getenv("STORAGE"))
	if err != nil {
		return err
	}
	logging.Disable() // what matters comes as an error of sema
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Getenv("REDIS"), ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	engine, err := redisengine.New(rdb, nil)
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	sem, err := sema.New(engine, "report", 1, &sema.Options{Lease: 2 * time.Second, Label: name})
	if err != nil {
		return err
	}
	defer func() { _ = sem.Close() }()
	permit, err := sem.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = permit.Release() }()
	work := permit.Context(ctx)
	say := func(format string, args ...any) { fmt.Fprintf(out, name+": "+format+"\n", args...) }

	mine := "the report of " + name
	if err := store.Change(work, permit.Token(), func(old string) string {
		say("has read %q, writes %q", old, mine)
		return mine
	}); err != nil || name != "host 1" {
		return err
	}

	late := "what " + name + " still had to say"
	err = store.Change(ctx, permit.Token(), func(old string) string { // with work in place of ctx it would not be sent
		say("has read %q, and stands still", old)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-work.Done()
		say("goes on, and should stop: %v", context.Cause(work))
		return late
	})
	say("sends its write all the same: %v", err)
	if err := store.Overwrite(ctx, permit.Token(), late); err != nil {
		say("overwrites without a condition: %v", err)
	} else {
		say("overwrites without a condition: nobody refuses")
	}
	text, err := store.Read(ctx)
	if err != nil {
		return err
	}
	say("reads %q", text)
	return nil
}
