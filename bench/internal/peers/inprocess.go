package peers

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// memoryPairs is how many pairs are timed at once in memory.
const memoryPairs = 100

// repeat does a gate's work several times.
type repeat struct {
	Gate
	times int
}

func (r repeat) Work(ctx context.Context, held func()) error {
	for range r.times {
		if err := r.Gate.Work(ctx, held); err != nil {
			return err
		}
	}
	return nil
}

// weightedGate is golang.org/x/sync/semaphore.
type weightedGate struct{ sem *semaphore.Weighted }

func openWeighted(_ context.Context, s Setup) (Gate, error) {
	return repeat{weightedGate{semaphore.NewWeighted(int64(s.Limit))}, memoryPairs}, nil
}

func (g weightedGate) Work(ctx context.Context, held func()) error {
	if err := g.sem.Acquire(ctx, 1); err != nil {
		return err
	}
	held()
	g.sem.Release(1)
	return nil
}

func (weightedGate) Close() error { return nil }

// channelGate is a buffered channel used as a semaphore, with the select that
// lets a wait end with its context.
type channelGate chan struct{}

func openChannel(_ context.Context, s Setup) (Gate, error) {
	return repeat{make(channelGate, s.Limit), memoryPairs}, nil
}

func (g channelGate) Work(ctx context.Context, held func()) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case g <- struct{}{}:
	}
	held()
	<-g
	return nil
}

func (channelGate) Close() error { return nil }
