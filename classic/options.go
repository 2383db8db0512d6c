package classic

import (
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// Options are the settings of a lock or semaphore. The zero value is the
// book's behaviour; a type ignores the fields that are not about it.
type Options struct {
	// Lease is how long a permit lives unless refreshed. Default 10 s, as in
	// the book. Every client of a semaphore must use the same, except with
	// Clockless, where it is the lease of this client's permits and at least
	// 1 ms. Lock rounds it up to whole seconds.
	Lease time.Duration

	// Clock tells the time that is written and compared as a score. Default
	// time.Now. Not used by Lock and Clockless. A wrong clock here is how the
	// tests give a client skew.
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
func newCore(rdb redis.UniversalClient, name string, limit int, o Options) (core, error) {
	lease, err := duration("lease", o.Lease, defaultLease, time.Nanosecond)
	switch {
	case err != nil:
		return core{}, err
	case rdb == nil:
		return core{}, &InputError{"client", nil, "a connected go-redis client"}
	case limit < 1 || limit > maxLimit:
		return core{}, &InputError{"limit", limit, "1 to 2147483647"}
	}
	if err := checkName(name); err != nil {
		return core{}, err
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return core{rdb: rdb, name: name, limit: limit, lease: lease, clock: o.Clock}, nil
}

func checkName(name string) error {
	switch {
	case name == "", len(name) > maxName:
		return &InputError{"name", name, "1 to 512 bytes long"}
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return &InputError{"name", name, "UTF-8 text without control characters"}
	}
	return nil
}

// duration returns d, or def where d is zero.
func duration(field string, d, def, least time.Duration) (time.Duration, error) {
	if d == 0 {
		return def, nil
	}
	if d < least {
		return 0, &InputError{field, d, "at least " + least.String()}
	}
	return d, nil
}
