package classic

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/rediserror"
)

// cleanupTime bounds what a call does after its context ended or its request
// failed.
const cleanupTime = 250 * time.Millisecond

// core is what all types here are made of.
type core struct {
	rdb   redis.UniversalClient
	name  string
	limit int
	lease time.Duration
	unit  time.Duration // of scores; 0: seconds with a fraction
	clock func() time.Time
	known atomic.Bool // the server is one for this client

	// remove takes an entry out, and reports whether its permit was held.
	remove func(ctx context.Context, id string) (bool, error)
}

// now is the caller's time as a score. In seconds with a fraction it is what
// the book's Python writes, which near today is exact to a quarter of a
// microsecond.
func (c *core) now() float64 {
	ns := c.clock().UnixNano()
	if c.unit == 0 {
		return float64(ns) / 1e9
	}
	return float64(ns / int64(c.unit))
}

// cutoff is the newest score that counts as expired at now, this score
// included. It goes by this caller's lease: nobody else's is known.
func (c *core) cutoff(now float64) string {
	if c.unit == 0 {
		return scoreText(now - c.lease.Seconds())
	}
	units := c.lease / c.unit
	if c.lease%c.unit > 0 {
		units++
	}
	return scoreText(now - float64(units))
}

// scoreText writes a score in the shortest form that reads back the same.
func scoreText(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }

// removeMember is remove of the types that keep only the ZSET of that name.
func (c *core) removeMember(ctx context.Context, id string) (bool, error) {
	n, err := c.rdb.ZRem(ctx, c.name, id).Result()
	return n == 1, err
}

// Release gives the permit back; see [Semaphore].
func (c *core) Release(ctx context.Context, id string) (bool, error) {
	return c.byID(ctx, "release", id, c.remove)
}

// ranked ends an acquire that added an entry, and asked for its rank. When all
// permits were out, the entry is taken out again, or it would count as a holder
// until its lease ends; and when the request failed, because Redis may have
// executed it.
func (c *core) ranked(ctx context.Context, id string, rank *redis.IntCmd, err error) (string, bool, error) {
	if err != nil || rank.Val() >= int64(c.limit) {
		return c.undo(ctx, id, err)
	}
	return id, true, nil
}

// scripted ends an acquire by a script, which adds no entry when it refuses.
func (c *core) scripted(ctx context.Context, id string, taken bool, err error) (string, bool, error) {
	switch {
	case err != nil:
		return c.undo(ctx, id, err)
	case !taken:
		return "", false, nil
	}
	return id, true, nil
}

// undo takes out the entry of an acquire that failed with err, or was refused.
func (c *core) undo(ctx context.Context, id string, err error) (string, bool, error) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	_, undoErr := c.remove(ctx, id)
	// The first error is the one that tells the caller what is wrong.
	return "", false, failed("acquire", c.name, cmp.Or(err, undoErr))
}

// cleanup is the context for what must be done even though ctx has ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// transaction sends a transaction. When Redis refuses one of its commands it
// executes none; the error is then that command's, which says why.
func (c *core) transaction(ctx context.Context, fill func(redis.Pipeliner)) error {
	commands, err := c.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		fill(p)
		return nil
	})
	if !redis.IsExecAbortError(err) {
		return err
	}
	for _, command := range commands {
		if reason := command.Err(); reason != nil && !redis.IsExecAbortError(reason) {
			return reason
		}
	}
	return err
}

// begin fails if an operation is not to be sent: its context has ended, or the server is none for this client. The
// first one asks for that.
func (c *core) begin(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("classic: %s %q: %w", op, c.name, err)
	}
	if c.known.Load() {
		return nil
	}
	err := rediserror.Fits(ctx, c.rdb)
	c.known.Store(err == nil)
	return failed(op, c.name, err)
}

// byID runs an operation on one permit.
func (c *core) byID(ctx context.Context, op, id string, do func(context.Context, string) (bool, error)) (bool, error) {
	if id == "" {
		return false, invalid("id", id, "what Acquire returned")
	}
	if err := c.begin(ctx, op); err != nil {
		return false, err
	}
	ok, err := do(ctx, id)
	return ok, failed(op, c.name, err)
}

// deleteIf deletes a key if it has the given value, by WATCH as the book does.
// It tells whether it did.
func (c *core) deleteIf(ctx context.Context, key, value string) (bool, error) {
	for {
		deleted := false
		err := c.rdb.Watch(ctx, func(tx *redis.Tx) error {
			found, err := tx.Get(ctx, key).Result()
			if errors.Is(err, redis.Nil) || err == nil && found != value {
				return nil
			}
			if err != nil {
				return err
			}
			var del *redis.IntCmd
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				del = p.Del(ctx, key)
				return nil
			})
			deleted = del.Val() == 1
			return err
		}, key)
		if !errors.Is(err, redis.TxFailedErr) {
			return deleted, err
		}
		// The key changed between GET and EXEC: look again.
	}
}

// newID makes a random UUID (version 4), written as Python's str(uuid.uuid4()).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
