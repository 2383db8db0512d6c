// Command bench has sema, and what a user would pick in its place, do the same work in turns of milliseconds. "make bench"
// writes docs/data/bench.md.
//
//	go run .                                         all scenes, as Markdown; half an hour
//	go run . -scene alone,64-of-8 -for 5s            two of them
//	go run . -beside 0bcc14d                         this checkout beside a commit
//	go run . -beside ~/other -scene 4x16-of-8        or beside another checkout
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"sema/internal/fixture/child"
)

func main() {
	child.Role(driver, drive)
	child.Play()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := measure(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// list is a flag with values between commas.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = strings.Split(s, ","); return nil }

func measure(ctx context.Context) (err error) {
	r := run{progress: func(text string) { fmt.Fprintln(os.Stderr, text) }}
	flag.Var((*list)(&r.scenes), "scene", "`scenes` to run, separated by commas (default all)")
	flag.Var((*list)(&r.only), "only", "`contestants` to run (default all)")
	flag.DurationVar(&r.length, "for", 10*time.Second, "how long all turns of a contestant in a scene are")
	other := flag.String("beside", "", "a `checkout` or a commit, whose sema plays beside that of this checkout")
	out := flag.String("out", "", "`file` for the page with all tables (default the tables, on standard output)")
	flag.Parse()
	if *other != "" {
		if r.other, err = besides(ctx, *other); err != nil {
			return err
		}
		defer r.other.remove()
	}
	figures, err := r.all(ctx)
	switch {
	case err != nil:
		return err
	case *other != "":
		compared(os.Stdout, figures, *other)
	case *out == "":
		for _, f := range figures {
			f.table(os.Stdout)
		}
	default:
		text := &strings.Builder{}
		page(text, figures, r.length)
		return os.WriteFile(*out, []byte(text.String()), 0o644)
	}
	return nil
}

// scene is the same work for some contestants. The others are compared with the first one.
type scene struct {
	name, title               string
	store                     string // what starts before: "redis", "postgres", "files"; "": nothing
	processes, callers, limit int    // callers of each process
	hold                      time.Duration
	turn                      time.Duration
	light                     int // callers of each process that are tenants of their own, and rest; the waits are theirs
	batch                     int // pairs between two readings of the clock; then waits are not taken; 0: one
	who                       []string
	note                      string // below the table
}

const ms = time.Millisecond

var scenes = []scene{
	{name: "alone", title: "One caller", store: "redis", processes: 1, callers: 1, limit: 1, turn: 5 * ms,
		who: []string{"sema", "sema-keep", "sema-serve", "lua", "redislock", "redsync", "rueidislock", "noop"}},
	{name: "64-of-64", title: "64 callers, limit 64", store: "redis", processes: 1, callers: 64, limit: 64, turn: 20 * ms,
		who: []string{"sema", "sema-keep", "sema-serve", "lua", "noop"}},
	{name: "64-of-8", title: "64 callers of one process, limit 8", store: "redis", processes: 1, callers: 64, limit: 8, turn: 20 * ms,
		who: []string{"sema", "sema-keep", "sema-serve", "lua"}},
	{name: "4x16-of-8", title: "4 processes of 16 callers, limit 8", store: "redis", processes: 4, callers: 16, limit: 8, turn: 100 * ms,
		who: []string{"sema", "sema-keep", "sema-serve", "lua"}},
	{name: "4x256-of-8", title: "4 processes of 256 callers, limit 8", store: "redis", processes: 4, callers: 256, limit: 8, turn: 400 * ms,
		who: []string{"sema", "sema-keep", "sema-serve", "lua"}},
	{name: "512-of-8-work", title: "512 callers, limit 8, 1 ms of work", store: "redis", processes: 1, callers: 512, limit: 8, hold: ms, turn: 250 * ms,
		who: []string{"sema", "sema-keep", "sema-serve", "lua"}},
	{name: "8-of-1", title: "8 callers, limit 1", store: "redis", processes: 1, callers: 8, limit: 1, turn: 50 * ms,
		who: []string{"sema", "lua", "redislock", "redsync", "rueidislock"}},
	{name: "tenants", title: "20 tenants with one caller each, beside one with 400; limit 8, 5 ms of work", store: "redis",
		processes: 4, callers: 105, light: 5, limit: 8, hold: 5 * ms, turn: 1000 * ms,
		who: []string{"shares", "one-line", "two-level"}, note: "The waits are those of the 20. Each rests after its work, for 50 ms on average."},
	{name: "pools", title: "4 processes of 16 callers, one of each of two pools of 8", store: "redis", processes: 4, callers: 16, limit: 64, turn: 100 * ms,
		who: []string{"at-once", "in-turn"}},
	{name: "files-alone", title: "One caller, files", store: "files", processes: 1, callers: 1, limit: 1, turn: 5 * ms, who: []string{"sema-files"}},
	{name: "files-4x16-of-8", title: "4 processes of 16 callers, limit 8, files", store: "files", processes: 4, callers: 16, limit: 8, turn: 100 * ms, who: []string{"sema-files"}},
	{name: "postgres-alone", title: "One caller, PostgreSQL", store: "postgres", processes: 1, callers: 1, limit: 8, turn: 25 * ms, who: []string{"sema-postgres", "slots", "commits"}},
	{name: "postgres-16-of-16", title: "16 processes of one caller, limit 16, PostgreSQL", store: "postgres", processes: 16, callers: 1, limit: 16, turn: 200 * ms,
		who: []string{"sema-postgres", "slots"}},
	{name: "postgres-4x16-of-8-work", title: "4 processes of 16 callers, limit 8, 5 ms of work, PostgreSQL", store: "postgres", processes: 4, callers: 16, limit: 8, hold: 5 * ms, turn: 400 * ms,
		who: []string{"sema-postgres", "slots"}},
	{name: "memory-alone", title: "One caller, memory", processes: 1, callers: 1, limit: 1, turn: 2 * ms, batch: 100, who: []string{"sema-memory", "sema-memory-keep", "x-sync", "channel"}},
	{name: "memory-64-of-8", title: "64 callers, limit 8, memory", processes: 1, callers: 64, limit: 8, turn: 10 * ms, batch: 100, who: []string{"sema-memory", "sema-memory-keep", "x-sync", "channel"}},
}
