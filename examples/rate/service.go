package main

import (
	"context"
	"sync"
	"time"
)

// service stands in for what is limited. It counts the requests that are sent to it.
type service struct {
	mu              sync.Mutex
	now, most, sent int
	crowd           int           // so many are awaited
	there           chan struct{} // closed when they are there
}

// await returns a service at which each request takes until n are there at once.
func await(n int) *service { return &service{crowd: n, there: make(chan struct{})} }

func (s *service) call(ctx context.Context) {
	s.mu.Lock()
	s.now++
	s.sent++
	s.most = max(s.most, s.now)
	if s.now == s.crowd {
		close(s.there)
		s.crowd = 0
	}
	s.mu.Unlock()
	select {
	case <-s.there:
	case <-ctx.Done():
	case <-time.After(10 * time.Second): // the crowd may not come: then the counts tell
	}
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
}
