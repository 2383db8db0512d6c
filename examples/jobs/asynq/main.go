// Command asynq has three servers with ten workers each work off reports, of which
// two may run at once, and mails, of which three may; and four in all.
//
//	go run ./asynq
//
// starts Redis for both asynq and sema. work.go is what a program needs of it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"sema/examples/jobs/internal/counter"
	"sema/internal/fixture/local"
)

func main() {
	if err := demo(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const servers, reports, mails = 3, 20, 40

func demo(ctx context.Context, out io.Writer) error {
	server, err := local.Redis(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	var count counter.Counter
	mux := func() *asynq.ServeMux {
		mux := asynq.NewServeMux()
		for _, name := range []string{"report", "mail"} {
			mux.HandleFunc(name, func(ctx context.Context, _ *asynq.Task) error {
				return count.Work(name, func() error {
					time.Sleep(20 * time.Millisecond)
					return ctx.Err() // the permit is lost: asynq tries again
				})
			})
		}
		return mux
	}
	logging.Disable() // what matters comes as an error of sema
	for range servers {
		rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Address, ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		stop, err := work(rdb, mux())
		if err != nil {
			return err
		}
		defer stop()
	}

	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Address})
	defer func() { _ = rdb.Close() }()
	client := asynq.NewClientFromRedisClient(rdb)
	for name, n := range map[string]int{"report": reports, "mail": mails} {
		for range n {
			if _, err := client.EnqueueContext(ctx, asynq.NewTask(name, nil), asynq.MaxRetry(3)); err != nil {
				return err
			}
		}
	}
	if err := count.Await(ctx, reports+mails); err != nil {
		return err
	}
	for _, of := range []struct {
		name  string
		limit int
	}{{"report", limits["report"]}, {"mail", limits["mail"]}, {"in all", inAll}} {
		if err := count.Say(out, of.name, of.limit); err != nil {
			return err
		}
	}
	return nil
}
