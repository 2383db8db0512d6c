package register_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engine/register"
	"sema/lab/expect"
)

// A row of a later release is left as it is, the error says who wrote it, and whoever
// waits is served when it has gone. What a later release writes behind a row that can
// be read is no harm.
func TestARowOfALaterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHall()
		e, err := register.New(store, nil)
		expect.OK(t, err)
		defer func() { _ = e.Close() }()
		s, err := sema.New(e, "x", 1, nil)
		expect.OK(t, err)
		defer func() { _ = s.Close() }()
		p, err := s.Acquire(t.Context())
		expect.OK(t, err)

		row := store.rows["x"]
		row.Data = append(bytes.Clone(row.Data), "what is to come"...)
		store.rows["x"] = row
		if st, err := s.State(t.Context()); err != nil || st.Used != 1 {
			t.Errorf("more behind a row: %+v, %v", st, err)
		}
		expect.OK(t, p.Release())

		was := store.rows["x"]
		later := was
		later.Version++
		later.Data = []byte("\x02\x050.7.1 whatever")
		store.rows["x"] = later
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.TryAcquire(ctx)
		var failure *engine.Error
		if !errors.As(err, &failure) || !failure.Temporary || !failure.NotExecuted || failure.Hint == "" {
			t.Fatalf("a later row: %#v", err)
		}
		for _, word := range []string{"form 2", "0.7.1", "form 1", engine.Version} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q has no %q", err, word)
			}
		}
		if !bytes.Equal(store.rows["x"].Data, later.Data) {
			t.Errorf("the row became %q", store.rows["x"].Data)
		}
		got := make(chan error)
		go func() {
			p, err := s.Acquire(context.Background())
			if err == nil {
				err = p.Release()
			}
			got <- err
		}()
		time.Sleep(10 * time.Second)
		store.mu.Lock()
		was.Version = later.Version + 1
		store.rows["x"] = was
		store.mu.Unlock()
		expect.OK(t, <-got)
	})
}
