package sematest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sema"
	"sema/sematest"
)

// shown stands for the *testing.T that a test has: it prints what fails.
type shown struct {
	testing.TB
	end func()
}

func (t *shown) Helper()          {}
func (t *shown) Cleanup(f func()) { t.end = f }
func (t *shown) Errorf(format string, args ...any) {
	lines := strings.Split(fmt.Sprintf(format, args...), "\n")
	fmt.Println(strings.Join(lines[:2], "\n")) // the rest is the files' places
}

// worker is the program under test: it works until its permit is lost.
func worker(ctx context.Context, engine sema.Engine) error {
	sem, err := sema.New(engine, "jobs", 1, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sem.Close() }()
	return sem.Do(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}

// A program loses its permit in the midst of its work.
func ExampleEngine_Lose() {
	ctx, t := context.Background(), &shown{}
	engine := sematest.New(t)
	ended := make(chan error)
	go func() { ended <- worker(ctx, engine) }()

	engine.AwaitHeld(ctx, "jobs", 1)
	engine.Lose("jobs")
	fmt.Println(errors.Is(<-ended, sema.ErrLost))
	t.end()
	// Output: true
}

// One of several permits is lost.
func ExamplePermit_Lose() {
	ctx, t := context.Background(), &shown{}
	engine := sematest.New(t)
	sem, _ := sema.New(engine, "jobs", 3, nil)
	first, _ := sem.Acquire(ctx)
	second, _ := sem.Acquire(ctx)

	engine.Held("jobs")[0].Lose()
	<-first.Context(ctx).Done()
	fmt.Println(first.Release(), second.Release())
	t.end()
	// Output: sema: permit lost: "jobs" has no permit m1-1-1 <nil>
}

// A program forgets to release: the test fails, and says where it acquired.
func ExampleNew() {
	t := &shown{}
	engine := sematest.New(t)
	sem, _ := sema.New(engine, "jobs", 3, nil)
	permit, _ := sem.Acquire(context.Background())
	t.end() // the test is over
	fmt.Println(permit.Weight(), "held")
	// Output:
	// sematest: permit m1-1-1 of "jobs", weight 1, was not released; acquired at
	// 	sema/sematest_test.ExampleNew
	// 1 held
}

// The server's memory is full: the next call fails with Redis's error for that.
func ExampleEngine_Inject() {
	ctx, t := context.Background(), &shown{}
	engine := sematest.New(t)
	sem, _ := sema.New(engine, "jobs", 1, nil)

	engine.Inject(sematest.Fault{On: "acquire", Err: sematest.Full()})
	_, err := sem.Acquire(ctx)
	fmt.Println(err)
	permit, err := sem.Acquire(ctx)
	fmt.Println(err, permit.Release())
	t.end()
	// Output:
	// sema: acquire "jobs": OOM command not allowed when used memory > 'maxmemory' (the server's memory is full: raise its maxmemory; releases still work)
	// <nil> <nil>
}

// What fails for a moment is repeated: the program notices nothing of a lost
// answer, or of a server that is away for less than three seconds.
func ExampleFault() {
	ctx, t := context.Background(), &shown{}
	engine := sematest.New(t)
	sem, _ := sema.New(engine, "jobs", 1, nil)

	engine.Inject(sematest.Fault{On: "acquire", Err: sematest.NoAnswer(), Executed: true})
	engine.Inject(sematest.Fault{On: "acquire", Err: sematest.Unreachable(), Times: 2})
	permit, err := sem.Acquire(ctx)
	fmt.Println(err, len(engine.Held("jobs")), permit.Release())
	t.end()
	// Output: <nil> 1 <nil>
}

// The test pauses the semaphore as an operator does: three callers queue, and are served in
// their order after it goes on.
func ExampleEngine_AwaitWaiting() {
	ctx, t := context.Background(), &shown{}
	engine := sematest.New(t)
	sem, _ := sema.New(engine, "jobs", 1, nil)
	operator, _ := sema.Operate(engine, "jobs")
	_ = operator.Set(ctx, sema.Rule{Limit: 1}) // nobody has used it yet, and Pause wants a semaphore that exists
	_ = operator.Pause(ctx)
	served := make(chan int, 3)
	for i := range 3 {
		go func() {
			_ = sem.Do(ctx, func(context.Context) error {
				served <- i
				return nil
			})
		}()
		engine.AwaitWaiting(ctx, "jobs", i+1)
	}
	fmt.Println(len(served), "served")
	_ = operator.Unpause(ctx)
	fmt.Println(<-served, <-served, <-served)
	_, _ = sem.Close(), operator.Close()
	t.end()
	// Output:
	// 0 served
	// 0 1 2
}
