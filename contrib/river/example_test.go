package semariver_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"sema"
	"sema/contrib/river"
	"sema/engines/memengine"
)

// Twenty jobs at once in all clients together, five of each kind, and of reports
// two.
func ExampleNew() {
	engine, ctx := memengine.New(), context.Background()
	sem, err := sema.New(engine, "jobs", 20, &sema.Options{Caps: sema.Caps{5}})
	if err != nil {
		fmt.Println(err)
		return
	}
	operator, err := sema.Operate(engine, "jobs")
	if err == nil {
		err = errors.Join(operator.Set(ctx, sema.Rule{Limit: 20, Caps: sema.Caps{5}}), operator.Set(ctx, sema.Rule{Limit: 2}, "report"), operator.Close())
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := semariver.New(semariver.Limit{Semaphore: sem})
	if err != nil {
		fmt.Println(err)
		return
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[report]) error { return ctx.Err() }))

	pool := connect()
	client, err := river.NewClient(semariver.Driver(limiter, riverpgxv5.New(pool)), &river.Config{
		Queues:              map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Workers:             workers,
		Middleware:          []rivertype.Middleware{limiter},
		FetchOnlyKnownKinds: true, // so that the driver can leave out a kind
	})
	_ = client // client.Start(ctx) works on jobs until client.Stop
	fmt.Println(err, sem.Close())
	pool.Close()
	// Output: <nil> <nil>
}
