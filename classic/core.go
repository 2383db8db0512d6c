package classic

import (
	"context"
	"crypto/rand"
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
	clock func() time.Time
}

// now is the caller's time as the book's Python writes it: seconds as a float,
// which near today is exact to a quarter of a microsecond.
func (c *core) now() float64 { return float64(c.clock().UnixNano()) / 1e9 }

// cutoff is the newest score that counts as expired at now, this score
// included. It goes by this caller's lease: nobody else's is known.
func (c *core) cutoff(now float64) string { return seconds(now - c.lease.Seconds()) }

// seconds writes a score in the shortest form that reads back the same.
func seconds(s float64) string { return strconv.FormatFloat(s, 'f', -1, 64) }

// unsure ends an acquire whose request failed on its way: it may have been
// carried out, so the entry is taken out again.
func (c *core) unsure(ctx context.Context, id string, err error, remove func(context.Context, string) (bool, error)) (string, bool, error) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	// The first error is the one that tells the caller what is wrong.
	_, _ = remove(ctx, id)
	return "", false, failed("acquire", c.name, err)
}

// refused ends an acquire that was one too many: its entry must go, or it
// would count as a holder until its lease ends.
func (c *core) refused(ctx context.Context, id string, remove func(context.Context, string) (bool, error)) (string, bool, error) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	_, err := remove(ctx, id)
	return "", false, failed("acquire", c.name, err)
}

// cleanup is the context for what must be done even though ctx has ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// byID runs an operation on one permit.
func (c *core) byID(ctx context.Context, op, id string, do func(context.Context, string) (bool, error)) (bool, error) {
	if id == "" {
		return false, &InputError{"id", id, "what Acquire returned"}
	}
	if err := ctx.Err(); err != nil {
		return false, failed(op, c.name, err)
	}
	ok, err := do(ctx, id)
	return ok, failed(op, c.name, err)
}

// newID makes a random UUID (version 4), written as Python's str(uuid.uuid4()).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
