package semahttp

import (
	"context"
	"slices"
	"sync"
	"time"

	"sema"
	"sema/engine"
)

const (
	// queueAge is how old what is known of a queue may be: refusals come in
	// crowds, and each must not cost the engine the whole queue.
	queueAge = time.Second

	// queuePatience is how long a refusal waits to learn its place.
	queuePatience = 250 * time.Millisecond
)

// queues knows who waited, by semaphore.
type queues struct {
	mu    sync.Mutex
	known map[*sema.Semaphore]*queue
}

// queue is when those who wait came, in order.
type queue struct {
	mu   sync.Mutex                 // held while the engine is asked
	at   time.Time                  // when it answered
	came map[engine.Key][]time.Time // by key
}

// position is the place in the queue, among those of its key, of a request that came then;
// 0 if it cannot be known. The queue's order is that of coming. What the engine says of
// a ticket is dated by when its answer was there, which is late, so that nobody
// is counted as before himself.
func (q *queues) position(ctx context.Context, l Limiter, came time.Time) int {
	if l.semaphore == nil {
		return 0
	}
	one := q.of(l.semaphore)
	one.mu.Lock()
	defer one.mu.Unlock()
	if time.Since(one.at) > queueAge {
		ctx, cancel := context.WithTimeout(ctx, queuePatience)
		defer cancel()
		st, err := l.semaphore.State(ctx)
		if err != nil {
			return 0
		}
		one.at, one.came = time.Now(), map[engine.Key][]time.Time{}
		for _, w := range st.Waiters {
			one.came[w.Key] = append(one.came[w.Key], one.at.Add(-w.Waiting))
		}
		for _, came := range one.came {
			slices.SortFunc(came, time.Time.Compare)
		}
	}
	before, _ := slices.BinarySearchFunc(one.came[l.key], came.Add(-l.priority), time.Time.Compare)
	return before + 1
}

// of is the queue of a semaphore. Old ones are forgotten.
func (q *queues) of(s *sema.Semaphore) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.known[s]
	if one == nil {
		if q.known == nil || len(q.known) > 1000 {
			q.known = map[*sema.Semaphore]*queue{}
		}
		one = &queue{}
		q.known[s] = one
	}
	return one
}
