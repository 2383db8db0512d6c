package measure

import (
	"context"
	"time"

	"sema"
)

// newcomerRests is how long a newcomer stays away before it comes again, so that
// the others have all permits among themselves by then.
const newcomerRests = 5 * time.Millisecond

// newcomer is a process of many callers that have all permits among themselves,
// and beside it processes of one caller each that come anew again and again: with
// a semaphore that has not been used before.
func (s Store) newcomer(ctx context.Context, o Setup) (Gate, error) {
	if o.Process == 0 {
		busy, err := s.sema(ctx, o)
		return busy.Times(16), err // whose waits are not timed
	}
	return Gate{Workers: 1, Work: func(ctx context.Context, _ int, held func()) error {
		one, err := sema.New(s.Engine, o.Name, o.Limit, o.options())
		if err != nil {
			return err
		}
		defer func() { _ = one.Close() }()
		p, err := one.Acquire(ctx)
		if err != nil {
			return err
		}
		held()
		if err := p.Release(); err != nil {
			return err
		}
		return sleep(ctx, newcomerRests)
	}}, nil
}
