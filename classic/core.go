package classic

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
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

// undoFailed ends an acquire whose request failed. Redis may have executed it,
// so the entry is taken out again.
func (c *core) undoFailed(ctx context.Context, id string, err error, remove func(context.Context, string) (bool, error)) (string, bool, error) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	// The first error is the one that tells the caller what is wrong.
	_, _ = remove(ctx, id)
	return "", false, failed("acquire", c.name, err)
}

// undoRefused ends an acquire that came when all permits were out. Its entry
// is taken out again, or it would count as a holder until its lease ends.
func (c *core) undoRefused(ctx context.Context, id string, remove func(context.Context, string) (bool, error)) (string, bool, error) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	_, err := remove(ctx, id)
	return "", false, failed("acquire", c.name, err)
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

// byID runs an operation on one permit.
func (c *core) byID(ctx context.Context, op, id string, do func(context.Context, string) (bool, error)) (bool, error) {
	if id == "" {
		return false, invalid("id", id, "what Acquire returned")
	}
	if err := ended(ctx, op, c.name); err != nil {
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
