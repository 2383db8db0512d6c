// Package adapt decides about a limit from outside of the processes that hold permits: they only report
// how their holds went, see sema.Adapt.
package adapt

import (
	"context"
	"fmt"

	"sema"
	"sema/engine"
	"sema/internal/hooks"
)

// Control decides about the limit of a semaphore whose holders report, until ctx ends. Of several
// processes that would, one at a time does. told, if not nil, is told of each change, as
// sema.Observer.LimitChanged is. Control fails at once with a *sema.ArgumentError on a value out of range, or
// if the engine takes no reports; and otherwise returns ctx's error when ctx ends. It does not make
// a semaphore: that begins with its holders.
func Control(ctx context.Context, e sema.Engine, name string, a sema.Adapt, told func(sema.Event)) error {
	if a.Max == 0 {
		return &sema.ArgumentError{Package: "adapt", What: "range of the limit", Value: fmt.Sprintf("%d…%d", a.Min, a.Max), Want: fmt.Sprintf("two limits of 1 … %d, the smaller one first", engine.MaxLimit)}
	}
	s, err := sema.New(e, name, a.Min, &sema.Options{Adapt: &a, Observer: sema.Observer{LimitChanged: told}})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	hooks.Decide(ctx, s)
	return ctx.Err()
}
