package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"sema"
	"sema/engines/memengine"
	"sema/metrics"
	"sema/watch"
)

func ExampleRecorder_Observer() {
	recorder, err := metrics.NewRecorder(nil)
	if err != nil {
		panic(err)
	}
	e := memengine.New()
	defer func() { _ = e.Close() }()
	sem, err := sema.New(e, "llm", 1, &sema.Options{Observer: recorder.Observer().And(sema.Observer{
		Failed: func(f sema.Event) { fmt.Println("own observer:", errors.Is(f.Err, sema.ErrBusy)) },
	})})
	if err != nil {
		panic(err)
	}
	defer func() { _ = sem.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	permit, err := sem.Acquire(ctx)
	if err != nil {
		panic(err)
	}
	_, _ = sem.TryAcquire(ctx) // nothing is free
	_ = permit.Release()

	var text strings.Builder
	_ = metrics.WriteText(ctx, &text, recorder) // what metrics.Handler serves
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "sema_acquires_total") && !strings.HasSuffix(line, " 0\n") {
			fmt.Print(line)
		}
	}
	// Output:
	// own observer: true
	// sema_acquires_total{sema_name="llm",result="acquired"} 1
	// sema_acquires_total{sema_name="llm",result="refused"} 1
}

func ExampleNewWatch() {
	e := memengine.New()
	defer func() { _ = e.Close() }()
	sem, err := sema.New(e, "llm", 5, nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = sem.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	permit, err := sem.Acquire(ctx, sema.Weight(2))
	if err != nil {
		panic(err)
	}
	defer func() { _ = permit.Release() }()

	watcher, err := watch.New(e, nil)
	if err != nil {
		panic(err)
	}
	defer watcher.Close()
	all, err := metrics.NewWatch(watcher, nil)
	if err != nil {
		panic(err)
	}
	defer all.Close()
	_ = metrics.WriteText(ctx, os.Stdout, all)
	// Output:
	// # HELP sema_limit Weight that may be held at once.
	// # TYPE sema_limit gauge
	// sema_limit{sema_name="llm"} 5
	// # HELP sema_leases_active Weight that is held.
	// # TYPE sema_leases_active gauge
	// sema_leases_active{sema_name="llm"} 2
	// # HELP sema_queue_size Callers that wait for a permit.
	// # TYPE sema_queue_size gauge
	// sema_queue_size{sema_name="llm"} 0
	// # HELP sema_queue_oldest_seconds How long the caller that came first has waited.
	// # TYPE sema_queue_oldest_seconds gauge
	// sema_queue_oldest_seconds{sema_name="llm"} 0
	// # HELP sema_leases_reclaimed_total Permits whose lease ended without a release.
	// # TYPE sema_leases_reclaimed_total counter
	// sema_leases_reclaimed_total{sema_name="llm"} 0
	// # HELP sema_engine_up 1 if the engine answers, else 0.
	// # TYPE sema_engine_up gauge
	// sema_engine_up 1
}
