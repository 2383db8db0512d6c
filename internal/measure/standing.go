package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sema"
)

// crowdLease is the lease of a crowd: so long that nobody asks again while
// hand-offs are counted.
const crowdLease = 10 * time.Minute

// crowd waits for one permit and stays as large as it is: a caller that was served
// queues again. The one that holds the permit stands still until it is let go on.
type crowd struct {
	life             context.Context
	release, arrived chan struct{}
	failed           chan error
}

// queue makes a crowd. The work of a round is hand-offs one after the other.
func (s Store) queue(ctx context.Context, o Setup) (Gate, error) {
	all, closing, err := s.semaphores(min(o.Crowd, 8), 1, &sema.Options{Lease: crowdLease}, func(int) string { return o.Name })
	if err != nil {
		return Gate{Close: closing}, err
	}
	life, quit := context.WithCancel(context.Background())
	c := &crowd{life, make(chan struct{}), make(chan struct{}), make(chan error, o.Crowd+1)}
	var group sync.WaitGroup
	for i := range o.Crowd + 1 {
		group.Go(func() { c.failed <- c.stand(all[i%len(all)]) })
	}
	g := Gate{Unlimited: true}
	g.Close = func() error {
		quit()
		defer group.Wait()
		return closing()
	}
	g.Work = func(ctx context.Context, _ int, held func()) error {
		err := pass(ctx, c.release, nil, c.failed)
		if err == nil {
			err = pass(ctx, nil, c.arrived, c.failed)
			held()
		}
		return err
	}
	if err := pass(ctx, nil, c.arrived, c.failed); err != nil {
		return g, err
	}
	return g, grown(ctx, o.Crowd, func() (int, error) {
		st, err := all[0].State(ctx)
		return len(st.Waiters), err
	})
}

// stand queues, holds and queues again.
func (c *crowd) stand(s *sema.Semaphore) error {
	for {
		p, err := s.Acquire(c.life)
		if err != nil {
			return err
		}
		err = pass(c.life, c.arrived, nil, nil)
		if err == nil {
			err = pass(c.life, nil, c.release, nil)
		}
		if err == nil {
			err = p.Release()
		}
		if err != nil {
			return err // closing the semaphore gives back
		}
	}
}

// pass sends or receives, unless something fails or ctx ends first. Channels
// may be nil.
func pass(ctx context.Context, to chan<- struct{}, from <-chan struct{}, failed <-chan error) error {
	select {
	case to <- struct{}{}:
		return nil
	case <-from:
		return nil
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// grown waits until there are so many, or for a second there have been no more:
// not every waiter of a process needs a ticket of its own.
func grown(ctx context.Context, wanted int, count func() (int, error)) error {
	for most, since := -1, time.Now(); ; {
		began := time.Now()
		n, err := count()
		if err != nil || n >= wanted {
			return err
		}
		if n > most {
			most, since = n, time.Now()
		}
		if time.Since(since) > time.Second {
			return nil
		}
		if err := sleep(ctx, max(20*time.Millisecond, 3*time.Since(began))); err != nil {
			return err
		}
	}
}

// idle does nothing.
func (Store) idle(context.Context, Setup) (Gate, error) {
	return Gate{Unlimited: true, Work: func(ctx context.Context, _ int, held func()) error {
		held()
		return sleep(ctx, 50*time.Millisecond)
	}}, nil
}

// holding holds many permits, which are renewed meanwhile.
func (s Store) holding(ctx context.Context, o Setup) (Gate, error) {
	all, closing, err := s.semaphores(1, o.Crowd, o.options(), func(int) string { return o.Name })
	if err != nil {
		return Gate{Close: closing}, err
	}
	life, end := context.WithCancel(context.Background()) // permits may end with the context of Acquire
	g, _ := s.idle(ctx, o)
	g.Close = func() error { defer end(); return closing() }
	g.Check = func(ctx context.Context) error {
		st, err := all[0].State(ctx)
		if err == nil && st.Used < st.Limit {
			err = fmt.Errorf("%d of %d permits were lost", st.Limit-st.Used, o.Crowd)
		}
		return err
	}
	failed := make(chan error, o.Crowd)
	for range o.Crowd {
		go func() {
			_, err := all[0].Acquire(life)
			failed <- err
		}()
	}
	for range o.Crowd {
		if err := errors.Join(<-failed, ctx.Err()); err != nil {
			return g, err
		}
	}
	return g, nil
}

// sleep ends early when ctx does.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
