package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sema"
)

const (
	// lineSessions is how many sessions the waiters of a line are spread over.
	lineSessions = 8
	// lineLease is the lease of a line: so long that nobody asks again while
	// hand-offs are counted.
	lineLease = 10 * time.Minute
	// fillTime bounds how long no further waiter may have queued.
	fillTime = time.Minute
)

// line is a queue that stays as long as it is: who was served queues again. The
// one that holds the permit stands at the gate until it is let through.
type line struct {
	name    string
	waiters int
	gate    chan struct{} // lets the holder release
	arrived chan struct{} // the next one holds the permit
	served  atomic.Int64
	failed  chan error
	quit    chan struct{}
	group   sync.WaitGroup
	closing func()

	full   atomic.Bool // all have queued
	mu     sync.Mutex
	queued map[string]bool // permits that were seen to queue, until the line is full
	moved  chan struct{}
}

// fill makes a line of so many waiters, behind one holder. close is to be
// called in any case.
func (b *bench) fill(ctx context.Context, name string, waiters int) (*line, error) {
	l := &line{
		name: name, waiters: waiters,
		gate: make(chan struct{}), arrived: make(chan struct{}, 1), failed: make(chan error, 1), quit: make(chan struct{}),
		queued: map[string]bool{}, moved: make(chan struct{}, 1),
	}
	names := make([]string, min(waiters, lineSessions))
	for i := range names {
		names[i] = name
	}
	o := sema.Options{Lease: lineLease, Observer: sema.Observer{Queued: l.see}}
	sems, closing, err := b.open(names, 1, o)
	l.closing = closing
	if err != nil {
		return l, err
	}
	for i := range waiters + 1 {
		l.group.Go(func() { l.stand(ctx, sems[i%len(sems)]) })
	}
	for {
		l.mu.Lock()
		n := len(l.queued)
		l.mu.Unlock()
		if n >= waiters {
			break
		}
		b.tell(fmt.Sprintf(": %d of %d queued", n, waiters))
		select {
		case <-l.moved:
			if err := sleep(ctx, 20*time.Millisecond); err != nil { // let some more come
				return l, err
			}
		case err := <-l.failed:
			return l, err
		case <-time.After(fillTime):
			return l, fmt.Errorf("%d of %d queued, and no more within %v", n, waiters, fillTime)
		case <-ctx.Done():
			return l, ctx.Err()
		}
	}
	l.full.Store(true)
	return l, l.await(ctx)
}

// see is the observer: a ticket is in the queue.
func (l *line) see(e sema.Event) {
	if l.full.Load() {
		return
	}
	l.mu.Lock()
	l.queued[e.ID] = true
	l.mu.Unlock()
	select {
	case l.moved <- struct{}{}:
	default:
	}
}

// stand queues, holds and queues again.
func (l *line) stand(ctx context.Context, s *sema.Semaphore) {
	for {
		p, err := s.Acquire(ctx)
		if err != nil {
			l.fail(err)
			return
		}
		select {
		case l.arrived <- struct{}{}:
		case <-l.quit:
			return // closing gives back
		}
		select {
		case <-l.gate:
		case <-l.quit:
			return
		}
		if err := p.Release(); err != nil {
			l.fail(err)
			return
		}
	}
}

func (l *line) fail(err error) {
	select {
	case l.failed <- err:
	default: // the first counts
	}
}

// await waits for the next holder.
func (l *line) await(ctx context.Context) error {
	late := time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case <-l.arrived:
		return nil
	case err := <-l.failed:
		return err
	case <-late.C:
		return fmt.Errorf("no hand-off within %v", answerTime)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// handOff lets the holder go and waits for the next. It is for one goroutine
// at a time.
func (l *line) handOff(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	select {
	case l.gate <- struct{}{}:
	case err := <-l.failed:
		return 0, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	err := l.await(ctx)
	l.served.Add(1)
	return time.Since(began), err
}

// close has everybody leave, and returns when they have.
func (l *line) close() {
	close(l.quit)
	l.closing()
	l.group.Wait()
}

// hold acquires so many permits, a number of goroutines at a time; closing the
// semaphore gives them back.
func hold(ctx context.Context, s *sema.Semaphore, permits int) error {
	var left atomic.Int64
	left.Store(int64(permits))
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var group sync.WaitGroup
	for range min(permits, 256) {
		group.Go(func() {
			for ctx.Err() == nil && left.Add(-1) >= 0 {
				// Permits end with the context they were acquired with.
				if _, err := s.AcquireWithin(context.WithoutCancel(ctx), 1, answerTime); err != nil {
					fail(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
