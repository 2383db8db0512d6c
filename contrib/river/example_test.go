package semariver_test

import (
	"context"
	"fmt"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"sema"
	"sema/contrib/river"
	"sema/engine/memengine"
)

// Twenty jobs at once in all clients together, five of each kind, and of reports
// two.
func ExampleNew() {
	sem, err := sema.New(memengine.New(), "jobs", 20, &sema.Options{PerKey: 5})
	if err == nil {
		err = sem.For("report").Set(context.Background(), sema.Rule{Limit: 2})
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
