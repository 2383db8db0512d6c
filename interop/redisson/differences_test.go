//go:build interop

package interop

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/redisson"
)

// state is what a semaphore named e looks like in Redis: counter, held permits,
// and whether each has a time to live.
func (w world) state() string {
	w.t.Helper()
	counter, err := w.rdb.Get(w.ctx, "e").Result()
	if errors.Is(err, redis.Nil) {
		counter = "none"
	} else {
		expect.OK(w.t, err)
	}
	held, err := w.rdb.ZCard(w.ctx, "{e}:timeout").Result()
	expect.OK(w.t, err)
	s := fmt.Sprintf("counter %s, held %d", counter, held)
	for _, key := range []string{"e", "{e}:timeout"} {
		ttl, err := w.rdb.PTTL(w.ctx, key).Result()
		expect.OK(w.t, err)
		if ttl > 0 {
			s += ", " + key + " expires"
		}
	}
	return s
}

// Redisson and we act differently on the same data. docs/data/redisson.md says where;
// each of its lines is here, so that neither can change unnoticed.
func TestDifferencesInData(t *testing.T) {
	w := standalone(t)
	ctx, s, e := w.ctx, w.counter("e"), w.expirable("e")
	// Three permits are held in each case; the counter is as given.
	for _, c := range []struct {
		what     string
		counter  string // "" for none
		java     []string
		answer   string // Java's; "!" for an exception
		left     string // by Java
		ours     func() error
		leftOurs string
	}{
		{"unlink", "2", []string{"e", "e", "unlink"}, "true", "counter none, held 3",
			func() error { return yes(true)(e.Delete(ctx)) }, "counter none, held 0"},
		{"unlink without a counter", "", []string{"e", "e", "unlink"}, "false", "counter none, held 3",
			func() error { return yes(false)(e.Delete(ctx)) }, "counter none, held 0"},
		{"delete without a counter", "", []string{"e", "e", "delete"}, "true", "counter none, held 0",
			func() error { return yes(false)(e.Delete(ctx)) }, "counter none, held 0"},
		{"expire without a counter", "", []string{"e", "e", "expire", "d60000"}, "true", "counter none, held 3, {e}:timeout expires",
			func() error { return yes(false)(e.Expire(ctx, time.Minute)) }, "counter none, held 3, {e}:timeout expires"},
		{"trySetPermits without a counter", "", []string{"e", "e", "trySetPermits", "i5"}, "true", "counter 5, held 3",
			func() error { return yes(true)(e.TrySetPermits(ctx, 5)) }, "counter 2, held 3"},
		{"setPermits without a counter", "", []string{"e", "e", "setPermits", "i5"}, "null", "counter 5, held 3",
			func() error { return e.SetPermits(ctx, 5) }, "counter 2, held 3"},
		{"setPermits to fewer than are held", "2", []string{"e", "e", "setPermits", "i1"}, "null", "counter -2, held 3",
			func() error { return e.SetPermits(ctx, 1) }, "counter -2, held 3"}, // no difference
		{"addPermits(0) without a counter", "", []string{"s", "e", "addPermits", "i0"}, "null", "counter 0, held 3",
			func() error { return s.AddPermits(ctx, 0) }, "counter none, held 3"},
		{"release without a counter", "", []string{"s", "e", "release"}, "null", "counter 1, held 3",
			func() error { return fails(redisson.ErrNoSemaphore)(s.Release(ctx, 1)) }, "counter none, held 3"},
		{"tryAcquire(0)", "2", []string{"s", "e", "tryAcquire", "i0"}, "true", "counter 2, held 3",
			func() error { return refused(s.TryAcquire(ctx, 0)) }, "counter 2, held 3"},
		{"acquire(0)", "2", []string{"s", "e", "acquire", "i0"}, "null", "counter 2, held 3",
			func() error { return refused(s.Acquire(ctx, 0)) }, "counter 2, held 3"},
		{"release(0)", "2", []string{"s", "e", "release", "i0"}, "null", "counter 2, held 3",
			func() error { return refused(s.Release(ctx, 0)) }, "counter 2, held 3"},
		{"releaseIfExists(0)", "2", []string{"s", "e", "releaseIfExists", "i0"}, "false", "counter 2, held 3",
			func() error { _, err := s.ReleaseIfExists(ctx, 0); return refused(err) }, "counter 2, held 3"},
		{"tryAcquire(0) with ids", "2", []string{"e", "e", "tryAcquire", "i0"}, "", "counter 2, held 3",
			func() error { _, err := e.TryAcquireN(ctx, 0, time.Hour); return refused(err) }, "counter 2, held 3"},
		{"tryAcquire, counter 3e0", "3e0", []string{"s", "e", "tryAcquire"}, "!", "counter 3e0, held 3",
			func() error { return fails(redisson.ErrWrongType)(s.TryAcquire(ctx, 1)) }, "counter 3e0, held 3"},
		{"addPermits, counter 3e0", "3e0", []string{"s", "e", "addPermits", "i1"}, "null", "counter 4, held 3",
			func() error { return fails(redisson.ErrWrongType)(s.AddPermits(ctx, 1)) }, "counter 3e0, held 3"},
		{"drainPermits, counter 3e0", "3e0", []string{"s", "e", "drainPermits"}, "!", "counter 0, held 3",
			func() error { _, err := s.DrainPermits(ctx); return fails(redisson.ErrWrongType)(err) }, "counter 3e0, held 3"},
		{"trySetPermits, counter 3e0", "3e0", []string{"s", "e", "trySetPermits", "i1"}, "false", "counter 3e0, held 3",
			func() error { _, err := s.TrySetPermits(ctx, 1, 0); return fails(redisson.ErrWrongType)(err) }, "counter 3e0, held 3"},
		{"availablePermits beyond an int", "3000000000", []string{"s", "e", "availablePermits"}, "-1294967296", "counter 3000000000, held 3",
			func() error {
				n, err := s.AvailablePermits(ctx)
				return yes("3000000000")(fmt.Sprint(n), err)
			}, "counter 3000000000, held 3"},
		{"release beyond an int", "3000000000", []string{"s", "e", "release"}, "null", "counter 3000000001, held 3",
			func() error { return fails(redisson.ErrTooMany)(s.Release(ctx, 1)) }, "counter 3000000000, held 3"},
	} {
		prepare := func() {
			expect.OK(t, w.rdb.FlushDB(ctx).Err())
			if c.counter != "" {
				expect.OK(t, w.rdb.Set(ctx, "e", c.counter, 0).Err())
			}
			for i := range 3 {
				end := float64(time.Now().Add(time.Hour).UnixMilli())
				expect.OK(t, w.rdb.ZAdd(ctx, "{e}:timeout", redis.Z{Member: fmt.Sprintf("%016d", i), Score: end}).Err())
			}
		}
		prepare()
		if c.answer == "!" {
			w.javaFails("", c.java[0], c.java[1], c.java[2], c.java[3:]...)
		} else {
			w.java(c.answer, c.java[0], c.java[1], c.java[2], c.java[3:]...)
		}
		if got := w.state(); got != c.left {
			t.Errorf("%s: Java leaves %s; want %s", c.what, got, c.left)
		}
		prepare()
		if err := c.ours(); err != nil {
			t.Errorf("%s: go: %v", c.what, err)
		}
		if got := w.state(); got != c.leftOurs {
			t.Errorf("%s: we leave %s; want %s", c.what, got, c.leftOurs)
		}
		report.did("differences in data that the docs name", byJava, 1)
		report.did("differences in data that the docs name", byGo, 1)
	}
}

// yes makes an error of an answer that is not the expected one.
func yes[T comparable](want T) func(T, error) error {
	return func(got T, err error) error {
		if err == nil && got != want {
			err = fmt.Errorf("%v; want %v", got, want)
		}
		return err
	}
}

// fails is nil for the expected error.
func fails(want error) func(error) error {
	return func(err error) error {
		if errors.Is(err, want) {
			return nil
		}
		return fmt.Errorf("%v; want %v", err, want)
	}
}

// refused is nil for an *ArgumentError.
func refused(err error) error {
	var wrong *redisson.ArgumentError
	if errors.As(err, &wrong) {
		return nil
	}
	return fmt.Errorf("%v; want an *ArgumentError", err)
}

// What setPermits publishes: Redisson the new number, also when it shrinks; we
// what is available, and only if that grew.
func TestWhatSetPermitsPublishes(t *testing.T) {
	w := standalone(t)
	ctx, e := w.ctx, w.expirable("e")
	messages := w.rdb.Subscribe(ctx, "redisson_sc:{e}")
	defer func() { expect.OK(t, messages.Close()) }()
	_, err := messages.Receive(ctx)
	expect.OK(t, err)
	heard := func(what, want string) {
		t.Helper()
		expect.OK(t, w.rdb.Publish(ctx, "redisson_sc:{e}", "end").Err())
		got := ""
		for {
			m, err := messages.ReceiveMessage(ctx)
			expect.OK(t, err)
			if m.Payload == "end" {
				break
			}
			got += m.Payload + ";"
		}
		if got != want {
			t.Errorf("%s: heard %q; want %q", what, got, want)
		}
	}
	expect.OK(t, e.SetPermits(ctx, 5))
	_, err = e.TryAcquireN(ctx, 3, time.Hour)
	expect.OK(t, err)
	heard("beginning", "5;")
	w.java("null", "e", "e", "setPermits", "i4")
	heard("Java shrinks", "4;")
	w.java("null", "e", "e", "setPermits", "i6")
	heard("Java grows", "6;")
	expect.OK(t, e.SetPermits(ctx, 4))
	heard("we shrink", "")
	expect.OK(t, e.SetPermits(ctx, 6))
	heard("we grow", "3;")
	report.did("what setPermits publishes with permits held", byJava, 2)
	report.did("what setPermits publishes with permits held", byGo, 2)
}

// With a name mapper, the name for us is the mapped one.
func TestNameMapper(t *testing.T) {
	s := redistest.Start(t)
	w := newWorld(t, s.Client(), redisson.Options{Poll: slow}, "mapped", s.Addr())
	e := w.expirable("app:e")
	w.java("null", "e", "e", "setPermits", "i1")
	id, err := e.TryAcquire(w.ctx, time.Hour)
	expect.OK(t, err)
	done := w.blocked("e", "e", "redisson_sc:{app:e}", "tryAcquire", "l60000", "l3600000", "u")
	expect.OK(t, e.Release(w.ctx, id))
	w.join("mapped name", done)
	if n, err := e.AcquiredPermits(w.ctx); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	report.did("a name mapper of Java's, and its mapped names here", byGo, 1)
}
