//go:build interop

package classic

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/classic"
)

// client is one program with one semaphore, ours or the book's.
type client interface {
	acquire() (string, bool, error)
	release(id string) (bool, error)
	refresh(id string) (bool, error)
}

const lockWait = 20 * time.Millisecond // of the bare locks, on either side

// kind is one semaphore in both languages.
type kind struct {
	name  string
	exact bool // keeps to the limit when several ask at once
	lock  bool // limit 1, no refresh

	open                      func(rdb redis.UniversalClient, limit int, lease time.Duration) (classic.Semaphore, error)
	acquire, release, refresh string // functions of book.py; refresh "": none
}

var kinds = []kind{
	{"6.2.5 Lock", true, true, func(rdb redis.UniversalClient, _ int, lease time.Duration) (classic.Semaphore, error) {
		return classic.NewLock(rdb, "sem", classic.Options{Lease: lease, Wait: lockWait})
	}, "timed_lock_acquire", "lock_release", ""},
	{"11 Lock Lua", true, true, func(rdb redis.UniversalClient, _ int, lease time.Duration) (classic.Semaphore, error) {
		return classic.NewLock(rdb, "sem", classic.Options{Lease: lease, Wait: lockWait, Lua: true})
	}, "scripted_lock_acquire", "scripted_lock_release", ""},
	{"6.3.1 Basic", false, false, func(rdb redis.UniversalClient, limit int, lease time.Duration) (classic.Semaphore, error) {
		return classic.NewBasic(rdb, "sem", limit, classic.Options{Lease: lease})
	}, "basic_acquire", "basic_release", ""},
	{"6.3.2 Fair", false, false, func(rdb redis.UniversalClient, limit int, lease time.Duration) (classic.Semaphore, error) {
		return classic.NewFair(rdb, "sem", limit, classic.Options{Lease: lease})
	}, "fair_acquire", "fair_release", "fair_refresh"},
	{"6.3.2 Fair in ms", false, false, func(rdb redis.UniversalClient, limit int, lease time.Duration) (classic.Semaphore, error) {
		return classic.NewFair(rdb, "sem", limit, classic.Options{Lease: lease, ScoreUnit: time.Millisecond})
	}, "port_acquire", "fair_release", "port_refresh"},
	{"6.3.4 Locked", true, false, func(rdb redis.UniversalClient, limit int, lease time.Duration) (classic.Semaphore, error) {
		return classic.NewLocked(rdb, "sem", limit, classic.Options{Lease: lease})
	}, "locked_acquire", "fair_release", "fair_refresh"},
	{"11.2.3 Scripted", true, false, func(rdb redis.UniversalClient, limit int, lease time.Duration) (classic.Semaphore, error) {
		return classic.NewScripted(rdb, "sem", limit, classic.Options{Lease: lease})
	}, "scripted_acquire", "basic_release", "scripted_refresh"},
}

// ours is a client in Go.
type ours struct {
	ctx context.Context
	sem classic.Semaphore
}

func (o ours) acquire() (string, bool, error)  { return o.sem.Acquire(o.ctx) }
func (o ours) release(id string) (bool, error) { return o.sem.Release(o.ctx, id) }
func (o ours) refresh(id string) (bool, error) {
	return o.sem.(classic.Refresher).Refresh(o.ctx, id)
}

// theirs is a client in Python.
type theirs struct {
	py    *python
	kind  kind
	limit int
	lease time.Duration
}

func (b theirs) acquire() (string, bool, error) {
	var id *string
	var err error
	if b.kind.lock {
		err = b.py.call(&id, b.kind.acquire, "sem", lockWait.Seconds(), b.lease.Seconds())
	} else {
		err = b.py.call(&id, b.kind.acquire, "sem", b.limit, b.lease.Seconds())
	}
	if err != nil || id == nil {
		return "", false, err
	}
	return *id, true, nil
}

func (b theirs) release(id string) (ok bool, err error) {
	err = b.py.call(&ok, b.kind.release, "sem", id)
	return ok, err
}

func (b theirs) refresh(id string) (ok bool, err error) {
	err = b.py.call(&ok, b.kind.refresh, "sem", id)
	return ok, err
}
