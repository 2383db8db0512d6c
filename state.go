package sema

import (
	"context"
	"slices"
	"strings"

	"sema/internal/protocol"
)

// State is a snapshot. It is of one moment, but for that of a semaphore in Redis
// with more than 500 permits and tickets, which is read in parts: see
// docs/promises.md. A read that does not reach the engine is made again for
// three seconds. If ctx has no deadline, an engine that says nothing has three
// seconds as well.
func (s *Semaphore) State(ctx context.Context) (State, error) {
	s.made()
	s.loop.Lock()
	closed := s.loop.Closed()
	s.loop.Unlock()
	if closed {
		return State{}, named(ErrClosed, s.name)
	}
	st, err := s.loop.State(ctx)
	if err != nil {
		return st, err
	}
	if st.Limit == 0 {
		st.Limit = s.limit
	}
	// Of its own callers this process knows more than it last told the engine.
	mine, counted := s.loop.Session().Client()+"-", map[protocol.Target]bool{}
	s.loop.Lock()
	defer s.loop.Unlock()
	for i := range slices.Backward(st.Waiters) {
		if w := &st.Waiters[i]; strings.HasPrefix(w.ID, mine) {
			w.Behind = 0
			if t := (protocol.Target{Key: w.Key, Takes: w.Takes}); !counted[t] {
				w.Behind, counted[t] = s.loop.Machine.Behind(t), true
			}
		}
	}
	return st, nil
}
