package classic

import (
	"math"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// Options are the settings of a lock or semaphore. The zero value is the
// book's behaviour. Each constructor says which fields it uses; it ignores the
// others.
type Options struct {
	// Lease is how long a permit lives unless refreshed. Default 10 s, as in
	// the book. Every client of a semaphore must use the same, except with
	// Clockless, where it is the lease of this client's permits and at least
	// 1 ms. Lock rounds it up to whole seconds.
	Lease time.Duration

	// ScoreUnit is the unit of the times in the ZSET name. The default, 0, is
	// what the book's Python writes: seconds with a fraction. Ports of the
	// book to other languages write whole numbers: those to Java and Clojure
	// milliseconds (time.Millisecond), the one to Go seconds (time.Second).
	// No other value is taken. Every client of a semaphore must use the same:
	// to a client with another unit all permits look expired, or look as if
	// they never expire. With whole numbers a lease is rounded up to the unit,
	// and can then end up to one unit early, because the start of a permit is
	// rounded down.
	ScoreUnit time.Duration

	// Clock tells the time that is written and compared as a score. Default
	// time.Now. Not used by Lock and Clockless. The tests pass a wrong clock
	// to give a client skew.
	Clock func() time.Time

	// Wait is how long to go on trying for the lock before giving up, on this
	// machine's monotonic clock. Default 10 s for Lock and 10 ms for Locked,
	// as in the book; 1 ns means one try.
	Wait time.Duration

	// LockLease is the lease of the lock inside Locked, rounded up to whole
	// seconds. Default 10 s.
	LockLease time.Duration

	// Lua chooses the form with scripts where there are two. Lock, and the
	// lock inside Locked: chapter 11's scripts in place of SETNX with EXPIRE
	// and WATCH. Clockless: Acquire is one script, which closes its race if
	// all clients of the semaphore do so. Default false.
	Lua bool
}

const (
	defaultLease      = 10 * time.Second
	defaultLockWait   = 10 * time.Second
	defaultLockedWait = 10 * time.Millisecond
	maxName           = 512 // bytes
	maxLimit          = math.MaxInt32
)

// newCore checks what all constructors are given and fills in the defaults.
func newCore(rdb redis.UniversalClient, name string, limit int, o Options) (*core, error) {
	lease, err := duration("lease", o.Lease, defaultLease, time.Nanosecond)
	switch {
	case err != nil:
		return nil, err
	case isNil(rdb):
		return nil, invalid("client", nil, "a go-redis client")
	case limit < 1 || limit > maxLimit:
		return nil, invalid("limit", limit, "1 to 2147483647")
	case o.ScoreUnit != 0 && o.ScoreUnit != time.Millisecond && o.ScoreUnit != time.Second:
		return nil, invalid("score unit", o.ScoreUnit, "0 for seconds with a fraction, 1ms or 1s")
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	c := &core{rdb: rdb, name: name, limit: limit, lease: lease, unit: o.ScoreUnit, clock: o.Clock}
	c.remove = c.removeMember
	return c, nil
}

// isNil tells whether there is no client, or a nil pointer to one.
func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

func checkName(name string) error {
	switch {
	case name == "", len(name) > maxName:
		return invalid("name", name, "1 to 512 bytes")
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return invalid("name", name, "UTF-8 text without control characters")
	}
	return nil
}

// duration returns d, or def where d is zero.
func duration(what string, d, def, least time.Duration) (time.Duration, error) {
	if d == 0 {
		return def, nil
	}
	if d < least {
		return 0, invalid(what, d, "at least "+least.String())
	}
	return d, nil
}
