package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"sema/engine"
)

// Each calls found with a snapshot of each existing semaphore whose name begins with one of
// the prefixes (none: all). The calls come one at a time, in no particular order. The
// snapshots are taken after Each was called; other callers may share them, so found must
// not change them. missed is how many semaphores could not be read. Each fails if the names
// cannot be listed, if no semaphore could be read, or when ctx ends.
func (w *Watcher) Each(ctx context.Context, prefixes []string, found func(name string, st engine.State)) (missed int, err error) {
	inner, done, err := w.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	names, err := w.list(inner, time.Now())
	if err != nil {
		return 0, w.failed(ctx, "list", "", err)
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !begins(name, prefixes) })
	var one sync.Mutex
	missed, err = w.each(inner, names, 0, func(name string) error {
		s := w.use(name)
		defer w.release(s)
		if err := w.lockLook(inner, s); err != nil {
			return err
		}
		st, err := w.look(inner, s, false)
		<-s.lookLock
		if err != nil || st.Limit == 0 {
			return err
		}
		one.Lock()
		defer one.Unlock()
		found(name, st)
		return nil
	})
	return missed, w.failed(ctx, "list", "", err)
}
