package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/classic"
)

// skew is how far apart the clocks of neighbouring workers are, for the book's
// semaphores, which need them to agree.
const skew = 100 * time.Millisecond

// original has a handle use a semaphore of package classic, which does not wait:
// it tries again.
func (h *handle) original(rdb redis.UniversalClient, bug *planted) error {
	ahead := time.Duration(h.w.ID%3) * skew
	sem, err := bug.original(rdb, h.about.Name, h.about.Limit, classic.Options{
		Lease: h.about.Lease, Clock: func() time.Time { return time.Now().Add(ahead) },
	})
	h.close = func() error { return nil }
	h.acquire = func(ctx context.Context, what wish) (permit, error) {
		for {
			// Trusted for the lease from before it was asked for, less a tenth.
			until := time.Now().Add(h.about.Lease * 9 / 10)
			id, ok, err := sem.Acquire(ctx)
			switch {
			case ok:
				return &originalPermit{sem: sem, id: id, until: until}, nil
			case ctx.Err() != nil:
				return nil, fmt.Errorf("%w: %w", sema.ErrBusy, ctx.Err())
			case err == nil && what.try:
				return nil, sema.ErrBusy
			}
			select {
			case <-ctx.Done():
			case <-h.w.stopped:
				return nil, sema.ErrClosed
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return err
}

// originalPermit is a permit of package classic. It is not renewed.
type originalPermit struct {
	sem   classic.Semaphore
	id    string
	until time.Time
}

func (p *originalPermit) ID() string   { return p.id }
func (p *originalPermit) Token() int64 { return 0 }
func (p *originalPermit) Slot() int    { return -1 }

func (p *originalPermit) Err() error {
	if time.Now().After(p.until) {
		return sema.ErrLost
	}
	return nil
}

func (p *originalPermit) Release() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := p.sem.Release(ctx, p.id); err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	return nil
}
