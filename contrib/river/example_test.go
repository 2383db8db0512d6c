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
	keys, err := sema.NewKeys(memengine.New(), "jobs", 5, &sema.KeysOptions{
		Total:   20,
		LimitOf: func(kind string) int { return map[string]int{"report": 2}[kind] },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := semariver.New(semariver.Limit{Keys: keys})
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
	fmt.Println(err, keys.Close())
	pool.Close()
	// Output: <nil> <nil>
}
