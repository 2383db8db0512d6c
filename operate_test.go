package sema_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// unread is an engine whose states cannot be read so often.
type unread struct {
	protocol.Engine
	failures atomic.Int64
	silent   bool // instead of failing
}

type unreadSession struct {
	protocol.Session
	e *unread
}

func (e *unread) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := e.Engine.Open(name, who, notify)
	return &unreadSession{s, e}, err
}

func (s *unreadSession) State(ctx context.Context) (engine.State, error) {
	if s.e.failures.Add(-1) < 0 {
		return s.Session.State(ctx)
	}
	err := errors.New("connection refused")
	if s.e.silent {
		<-ctx.Done()
		err = ctx.Err()
	}
	return engine.State{}, &engine.Error{Op: "state", Temporary: true, Err: err}
}

// A look at a semaphore is tried again during a failover, for as long as an
// acquisition is, and ends if the engine says nothing.
func TestAStateIsReadAgain(t *testing.T) {
	for name, test := range map[string]struct {
		failures int64
		silent   bool
		want     string
		within   time.Duration
	}{
		"failover":     {3, false, "", time.Second},
		"out of reach": {1 << 40, false, "connection refused", 3 * time.Second},
		"silent":       {1 << 40, true, "no answer for 3s", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &unread{Engine: memengine.New(), silent: test.silent}
				o := operator(t, e)
				expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 5}))
				e.failures.Store(test.failures)
				began := time.Now()
				st, err := o.State(context.Background())
				switch {
				case test.want == "" && (err != nil || st.Limit != 5):
					t.Errorf("%+v, %v", st, err)
				case test.want != "" && (!errors.Is(err, sema.ErrEngine) || !strings.Contains(err.Error(), test.want) || errors.Is(err, context.DeadlineExceeded)):
					t.Errorf("%v", err)
				}
				if took := time.Since(began); took > test.within || took < test.within-time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
