package register_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sema/engine"
	"sema/engines/register"
	"sema/internal/fixture/expect"
)

// The engine does not change a row of a later release, and its error names that release.
// Waiters are served when the row has gone.
func TestARowOfALaterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLockingStore()
		s := semaphoreOn(t, engineOn(t, store, nil), nil)
		p, err := s.Acquire(t.Context())
		expect.OK(t, err)

		row := func() register.Next {
			store.mu.Lock()
			defer store.mu.Unlock()
			return store.rows["x"]
		}
		put := func(n register.Next) {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.rows["x"] = n
		}
		expect.OK(t, p.Release())

		was := row()
		later := was
		later.Version++
		later.Data = []byte("\x03\x050.7.1 whatever")
		put(later)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.TryAcquire(ctx)
		var failure *engine.Error
		if !errors.As(err, &failure) || !failure.Temporary || !failure.NotExecuted || failure.Hint == "" {
			t.Fatalf("a row of a later release: %#v", err)
		}
		expect.Has(t, err.Error(), "form 3", "0.7.1", "form 1", engine.Version)
		if !bytes.Equal(row().Data, later.Data) {
			t.Errorf("the row became %q", row().Data)
		}
		got := make(chan error)
		go func() { got <- s.Do(context.Background(), func(context.Context) error { return nil }) }()
		time.Sleep(time.Second)
		was.Version = later.Version + 1
		put(was)
		expect.OK(t, <-got)
	})
}
