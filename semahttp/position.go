package semahttp

import (
	"context"
	"slices"
	"sync"
	"time"

	"sema"
)

const (
	// queueAge is how old what is known of a queue may be: refusals come in
	// crowds, and each must not cost the engine the whole queue.
	queueAge = time.Second

	// queuePatience is how long a refusal waits to learn its place.
	queuePatience = 250 * time.Millisecond
)

// queues knows who waited, by the limiter's name.
type queues struct {
	mu    sync.Mutex
	known map[string]*queue
}

// queue is when those who wait came, in order.
type queue struct {
	mu   sync.Mutex // held while the engine is asked
	at   time.Time  // when it answered
	came []time.Time
}

// position is the place in the queue of a request that came then; 0 if it
// cannot be known. The queue's order is that of coming. What the engine says of
// a ticket is dated by when its answer was there, which is late, so that nobody
// is counted as before himself.
func (q *queues) position(ctx context.Context, l Limiter, came time.Time) int {
	if l.State == nil {
		return 0
	}
	one := q.of(l.Name)
	one.mu.Lock()
	defer one.mu.Unlock()
	if time.Since(one.at) > queueAge {
		ctx, cancel := context.WithTimeout(ctx, queuePatience)
		defer cancel()
		st, err := l.State(ctx)
		if err != nil {
			return 0
		}
		one.at = time.Now()
		one.came = one.came[:0]
		for _, w := range st.Waiters {
			one.came = append(one.came, one.at.Add(-w.Waiting))
		}
		slices.SortFunc(one.came, time.Time.Compare)
	}
	before, _ := slices.BinarySearchFunc(one.came, came, time.Time.Compare)
	return before + 1
}

// look is the last look at a semaphore, which all its keys share: a crowd of them must not
// cost the engine the whole queue for each.
type look struct {
	mu  sync.Mutex // held while the engine is asked
	at  time.Time  // when it answered
	st  sema.State
	err error
}

// of is what was seen, with those who wait for a key alone.
func (l *look) of(ctx context.Context, s *sema.Semaphore, key string) (sema.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) > queueAge {
		l.st, l.err = s.State(ctx)
		l.at = time.Now()
	}
	st, since := l.st, time.Since(l.at)
	st.Waiters = nil
	for _, w := range l.st.Waiters {
		if w.Key == key {
			w.Waiting += since
			st.Waiters = append(st.Waiters, w)
		}
	}
	return st, l.err
}

// of is the queue of a limiter. Old ones are forgotten.
func (q *queues) of(name string) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.known[name]
	if one == nil {
		if q.known == nil || len(q.known) > 1000 {
			q.known = map[string]*queue{}
		}
		one = &queue{}
		q.known[name] = one
	}
	return one
}
