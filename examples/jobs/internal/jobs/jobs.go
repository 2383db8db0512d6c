// Package jobs is the work of both queues' examples. Two reports may run at once, three mails, and four jobs in all.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/redisengine"
)

// Kind is a kind of jobs.
type Kind struct {
	Name   string
	Number int // that are put into the queue
	AtOnce int // that may run, whatever the number of workers
}

// Kinds are all of them.
var Kinds = []Kind{{"report", 20, 2}, {"mail", 40, 3}}

const inAll = 4

// Open opens the semaphore that all workers share, and stores the limits of its kinds of jobs for good.
func Open(ctx context.Context, rdb redis.UniversalClient) (sem *sema.Semaphore, end func(), err error) {
	engine, err := redisengine.New(rdb, nil)
	if err != nil {
		return nil, nil, err
	}
	if sem, err = sema.New(engine, "jobs", inAll, &sema.Options{Caps: sema.Caps{1}}); err != nil {
		return nil, nil, err
	}
	operator, err := sema.Operate(engine, "jobs")
	if err != nil {
		return nil, nil, err
	}
	err = operator.Set(ctx, sema.Rule{Limit: inAll, Caps: sema.Caps{1}})
	for _, k := range Kinds {
		err = errors.Join(err, operator.Set(ctx, sema.Rule{Limit: k.AtOnce}, k.Name))
	}
	return sem, func() { _ = errors.Join(sem.Close(), engine.Close()) }, errors.Join(err, operator.Close())
}

// Count counts how many jobs are worked on at once, and how many are done.
type Count struct {
	mu              sync.Mutex
	now, most, done map[string]int
	ended           chan struct{} // a word for each that is done
}

// NewCount makes a Count of nothing yet.
func NewCount() *Count {
	return &Count{now: map[string]int{}, most: map[string]int{}, done: map[string]int{}, ended: make(chan struct{}, 100)}
}

// Work works on a job of a kind for a moment. It fails if the permit is lost: then the queue tries again.
func (c *Count) Work(ctx context.Context, kind string) error {
	c.add(kind, 1, 0)
	time.Sleep(20 * time.Millisecond)
	if err := ctx.Err(); err != nil {
		c.add(kind, -1, 0)
		return err
	}
	c.add(kind, -1, 1)
	c.ended <- struct{}{}
	return nil
}

func (c *Count) add(kind string, now, done int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range []string{kind, "in all"} {
		c.now[of] += now
		c.done[of] += done
		c.most[of] = max(c.most[of], c.now[of])
	}
}

// Tell waits until all jobs are done, and says so. It fails if there were more at once than may be.
func (c *Count) Tell(ctx context.Context, out io.Writer) error {
	all := Kind{Name: "in all", AtOnce: inAll}
	for _, k := range Kinds {
		all.Number += k.Number
	}
	for i := range all.Number {
		select {
		case <-c.ended:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d jobs done: %w", i, all.Number, ctx.Err())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range append(Kinds[:len(Kinds):len(Kinds)], all) {
		if c.most[k.Name] > k.AtOnce {
			return fmt.Errorf("%s: %d at once", k.Name, c.most[k.Name])
		}
		fmt.Fprintf(out, "%s: %d done, never more than %d at once\n", k.Name, c.done[k.Name], k.AtOnce)
	}
	return nil
}
