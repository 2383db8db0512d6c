package sema_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sema"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
)

// lines is a text that several goroutines may write.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logged has the default logger write to a text until the test ends.
func logged(t *testing.T) *lines {
	before, l := slog.Default(), &lines{}
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return l
}

// A caller that is refused for want of free weight learns how much of which limit is held, and one
// that is refused for something else does not.
func TestWhatARefusedCallerLearns(t *testing.T) {
	s := semOf(t, memengine.New(), "db", 5, &sema.Options{Caps: sema.Caps{1}, Pools: "gpu=1, licence=2"})
	p, err := s.Acquire(t.Context(), sema.Weight(3), sema.Take("gpu", 1))
	expect.OK(t, err)
	q, err := s.Acquire(t.Context(), sema.For("acme"))
	expect.OK(t, err)
	for _, c := range []struct {
		want    string
		options []sema.AcquireOption
	}{
		{`"db": 4 of 5 held`, []sema.AcquireOption{sema.Weight(2)}},
		{`"db"`, []sema.AcquireOption{sema.For("acme")}},
		{`"db"`, []sema.AcquireOption{sema.Take("gpu", 1)}},
	} {
		if _, err := s.TryAcquire(t.Context(), c.options...); !errors.Is(err, sema.ErrBusy) || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%v: want %s", err, c.want)
		}
	}
	if text := fmt.Sprintf("%v", p); text != `sema.Permit("db", `+p.ID()+")" {
		t.Error(text)
	}
	expect.OK(t, errors.Join(p.Release(), q.Release()))
}

// The error of LimitStrict is enough: no line is logged beside it.
func TestStrictLogsNothing(t *testing.T) {
	l, e := logged(t), memengine.New()
	p, err := semOf(t, e, "db", 2, nil).Acquire(t.Context())
	expect.OK(t, err)
	var differs *sema.LimitError
	if _, err := semOf(t, e, "db", 3, &sema.Options{OnConflict: sema.LimitStrict}).Acquire(t.Context()); !errors.As(err, &differs) {
		t.Error(err)
	}
	if text := l.String(); text != "" {
		t.Error(text)
	}
	expect.OK(t, p.Release())
	q, err := semOf(t, e, "db", 3, &sema.Options{OnConflict: sema.LimitStored}).Acquire(t.Context())
	expect.OK(t, err)
	if text := l.String(); strings.Count(text, "another limit holds") != 1 {
		t.Error(text)
	}
	expect.OK(t, q.Release())
}

// A permit that nobody released is logged, once.
func TestAnAbandonedPermitIsLogged(t *testing.T) {
	l := logged(t)
	s := semOf(t, memengine.New(), "db", 1, &sema.Options{Renew: 20 * time.Millisecond})
	_, err := s.Acquire(t.Context())
	expect.OK(t, err)
	expect.Until(t, "a line", func() bool { runtime.GC(); return l.String() != "" })
	p, err := s.Acquire(expect.Within(t))
	expect.OK(t, err)
	expect.OK(t, p.Release())
	if text := l.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "without Release") || !strings.Contains(text, "semaphore=db") {
		t.Error(text)
	}
}
