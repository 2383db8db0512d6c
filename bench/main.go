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
