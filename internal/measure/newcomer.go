package measure

import (
	"context"
	"time"

	"sema"
)

// newcomerRests is how long a newcomer stays away before it comes again, so that
// the others have all permits among themselves by then.
const newcomerRests = 5 * time.Millisecond

// newcomer is a process whose callers have all permits among themselves, and
// beside it processes of one caller each that come anew again and again: with a
// semaphore that has not been used before. A caller that rests after each permit
// keeps it meanwhile; one that does not rest is busy all the time.
func (s Store) newcomer(ctx context.Context, o Setup) (Gate, error) {
	if o.Process == 0 {
		busy, err := s.sema(ctx, o)
		work := busy.Work
		busy.Work = func(ctx context.Context, worker int, held func()) error {
			if err := work(ctx, worker, held); err != nil || o.KeepUS == 0 {
				return err
			}
			return sleep(ctx, time.Duration(o.KeepUS/2)*time.Microsecond)
		}
		return busy.Times(2), err // its waits are not timed
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
