package redisengine

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"sema/engine"
	"sema/internal/rediserror"
)

// wrap makes the *engine.Error of a failed operation. Only a step changes anything.
func (t *topology) wrap(op, name string, err error) *engine.Error {
	m := rediserror.Sort(err)
	switch {
	case errors.Is(err, errFenced), errors.Is(err, errNotSent):
		m.Temporary, m.NotExecuted, m.Busy = true, true, true
	case errors.Is(err, ErrTooFewReplicas):
		m.Temporary, m.Hint = true, "see whether the replicas are there and keep up, or ask for fewer of them"
	case t.cluster == nil && redis.HasErrorPrefix(err, "MOVED"):
		m.Temporary = false // a client of one server stays with that one
	case errors.Is(err, engine.ErrClosed):
		m.NotExecuted, err = true, engine.ErrClosed
	}
	if s := t.rdb.PoolStats(); errors.Is(err, context.DeadlineExceeded) && t.poolSize > 0 && int(s.TotalConns)-int(s.IdleConns) >= t.poolSize {
		m.Hint = rediserror.HintPool
	}
	if redis.HasErrorPrefix(err, "SEMAVERSION") {
		err = fmt.Errorf("%w; this is sema %s, which knows %s", err, engine.Version, mark)
	}
	return &engine.Error{Op: op, Name: name, NotExecuted: m.NotExecuted || op != "step", Temporary: m.Temporary, Busy: m.Busy, Hint: m.Hint, Err: err}
}
