// Package others holds what docs/choosing.md says of other locks and
// semaphores against those themselves. It is a module of its own: nobody who
// uses sema needs them. The tests of npm's redis-semaphore are behind the build
// tag interop; run.sh fetches it and runs them.
package others

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	xsemaphore "golang.org/x/sync/semaphore"

	"sema"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// lease is short, so that what happens at its end is soon to be seen.
const lease = 300 * time.Millisecond

func semaphore(t testing.TB, rdb *redis.Client, name string, limit int, o *sema.Options) *sema.Semaphore {
	t.Helper()
	e, err := redisengine.New(rdb, nil)
	expect.OK(t, err)
	s, err := sema.New(e, name, limit, o)
	expect.OK(t, err)
	t.Cleanup(func() { _, _ = s.Close(), e.Close() })
	return s
}

// A mutex of redsync is not renewed: work that outlasts its expiry runs beside
// the next holder's, and hears of it when it unlocks.
func TestRedsyncOutlivesItsExpiry(t *testing.T) {
	sync := redsync.New(goredis.NewPool(redistest.Start(t).Client()))
	first := sync.NewMutex("m", redsync.WithExpiry(lease))
	expect.OK(t, first.LockContext(t.Context()))
	second := sync.NewMutex("m", redsync.WithExpiry(time.Minute), redsync.WithRetryDelay(time.Millisecond), redsync.WithTries(1<<30))
	expect.OK(t, second.LockContext(t.Context()))
	// Both believe that they hold it; the first has not been told anything.
	if ok, err := first.UnlockContext(t.Context()); ok || err == nil {
		t.Errorf("the first unlocks after it lost the mutex: %v, %v", ok, err)
	}
}

// By default redsync gives up after 32 tries, whatever the context allows.
func TestRedsyncGivesUp(t *testing.T) {
	sync := redsync.New(goredis.NewPool(redistest.Start(t).Client()))
	expect.OK(t, sync.NewMutex("m", redsync.WithExpiry(time.Hour)).LockContext(t.Context()))
	err := sync.NewMutex("m", redsync.WithRetryDelay(time.Microsecond)).LockContext(t.Context())
	var taken *redsync.ErrTaken
	if !errors.Is(err, redsync.ErrFailed) && !errors.As(err, &taken) {
		t.Errorf("after 32 tries: %v", err)
	}
	if t.Context().Err() != nil {
		t.Error("the context was over")
	}
}

// redislock waits and renews only if told to, and learns of a loss when it
// releases.
func TestRedislockOutlivesItsTTL(t *testing.T) {
	locker := redislock.New(redistest.Start(t).Client())
	if _, err := locker.Obtain(t.Context(), "long", time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Obtain(t.Context(), "long", time.Hour, nil); !errors.Is(err, redislock.ErrNotObtained) {
		t.Errorf("without a strategy: %v", err)
	}
	first, err := locker.Obtain(t.Context(), "l", lease, nil)
	expect.OK(t, err)
	if _, err := locker.Obtain(t.Context(), "l", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	expect.Is(t, first.Release(t.Context()), redislock.ErrLockNotHeld)
}

// A permit of sema is renewed as long as its holder lives, and work under its
// context ends when it is lost.
func TestSemaRenewsAndTells(t *testing.T) {
	stall.Run(t, func(t *stall.Case) {
		server := redistest.Start(t)
		s := semaphore(t, server.Client(), "s", 1, &sema.Options{Lease: lease})
		p, err := s.Acquire(t.Context())
		expect.OK(t, err)
		first := p.Deadline()
		for p.Deadline().Before(first.Add(2 * lease)) { // three leases from now
			if _, err := s.TryAcquire(t.Context()); !errors.Is(err, sema.ErrBusy) {
				t.Fatalf("a second holder of one: %v", err)
			}
		}
		server.Kill()
		<-p.Context(t.Context()).Done()
		expect.Is(t, p.Err(), sema.ErrLost)
	})
}

// x/sync and sema: the same contract in one process, but for what releasing
// twice does.
// The errors, and what is refused, are not the same.
func TestXSyncDiffers(t *testing.T) {
	theirs := xsemaphore.NewWeighted(3)
	e := memengine.New()
	ours, err := sema.New(e, "s", 3, nil)
	expect.OK(t, err)
	defer func() { _, _ = ours.Close(), e.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	// A weight of 0, and one below.
	var argument *sema.ArgumentError
	for _, n := range []int{0, -1} {
		if _, err := ours.Acquire(ctx, sema.Weight(n)); !errors.As(err, &argument) {
			t.Errorf("ours, weight %d: %v", n, err)
		}
	}
	if err := theirs.Acquire(ctx, 0); err != nil {
		t.Errorf("theirs, weight 0: %v", err)
	}
	panics(t, "theirs, weight -1", func() { _ = theirs.Acquire(ctx, -1) })
	// A weight above the limit.
	var heavy *sema.WeightError
	if _, err := ours.Acquire(ctx, sema.Weight(4)); !errors.As(err, &heavy) {
		t.Errorf("ours, weight 4 of 3: %v", err)
	}
	their := make(chan error, 1)
	go func() { their <- theirs.Acquire(ctx, 4) }()
	cancel()
	// The error is the context's own, or is about more.
	if err := <-their; err != context.Canceled {
		t.Errorf("theirs: %v", err)
	}
	if _, err := ours.Acquire(ctx); err == context.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("ours: %v", err)
	}
	// Weight is given back in parts, by anybody.
	ctx = t.Context()
	expect.OK(t, theirs.Acquire(ctx, 3))
	theirs.Release(1)
	if !theirs.TryAcquire(1) {
		t.Error("theirs: a part that was released is not free")
	}
	theirs.Release(3)
	// Nobody can ever have it.
	panics(t, "theirs, released more than held", func() { theirs.Release(1) })
}

func panics(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

func TestXSyncHasTheSameContract(t *testing.T) {
	theirs := xsemaphore.NewWeighted(3)
	e := memengine.New()
	ours, err := sema.New(e, "s", 3, nil)
	expect.OK(t, err)
	defer func() { _, _ = ours.Close(), e.Close() }()
	ctx := t.Context()
	expect.OK(t, theirs.Acquire(ctx, 2))
	p, err := ours.Acquire(ctx, sema.Weight(2))
	expect.OK(t, err)
	// A heavy request waits, and a light one does not overtake it.
	soon, cancel := context.WithCancel(ctx)
	their, our := make(chan error, 1), make(chan error, 1)
	go func() { their <- theirs.Acquire(soon, 2) }()
	go func() { _, err := ours.Acquire(soon, sema.Weight(2)); our <- err }()
	for theirs.TryAcquire(1) {
		theirs.Release(1)
	}
	for {
		light, err := ours.TryAcquire(ctx)
		if err != nil {
			break
		}
		_ = light.Release()
	}
	cancel()
	expect.Is(t, <-their, context.Canceled)
	if err := <-our; !errors.Is(err, context.Canceled) || !errors.Is(err, sema.ErrBusy) {
		t.Errorf("ours: %v", err)
	}
	theirs.Release(2)
	_ = p.Release()
	expect.Is(t, p.Release(), sema.ErrReleased)
	defer func() {
		if recover() == nil {
			t.Error("theirs released twice: no panic")
		}
	}()
	theirs.Release(2)
}

// When flock is killed its command runs on, and keeps the lock until it ends.
func TestFlockIsOutlivedByItsCommand(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	holder := exec.Command("flock", lock, "sh", "-c", "echo $$; exec sleep 1000")
	out, err := holder.StdoutPipe()
	expect.OK(t, err)
	expect.OK(t, holder.Start())
	pid := readPID(t, out)
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if syscall.Kill(pid, 0) != nil {
		t.Error("the command is dead")
	}
	var refused *exec.ExitError
	if err := exec.Command("flock", "-n", lock, "true").Run(); !errors.As(err, &refused) || refused.ExitCode() != 1 {
		t.Errorf("the lock is not held: %v", err)
	}
}

// GNU sem returns before its command has ended, unless told --fg: its exit
// status is not the command's.
func TestGNUSemDoesNotWaitForItsCommand(t *testing.T) {
	sem := func(args ...string) int {
		cmd := exec.Command("sem", append([]string{"--will-cite", "--id", "s"}, args...)...)
		cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir())
		if err := cmd.Run(); err != nil {
			var status *exec.ExitError
			if !errors.As(err, &status) {
				t.Fatal(err)
			}
			return status.ExitCode()
		}
		return 0
	}
	if code := sem("false"); code != 0 {
		t.Errorf("in the background: %d", code)
	}
	if code := sem("--fg", "false"); code != 1 {
		t.Errorf("with --fg: %d", code)
	}
}

// lock is the way of doing things before sema.
type lock func(ctx context.Context) (unlock func() error, err error)

// Three deployments: some programs have the old lock, then some both, then some
// sema alone. A program with both locks takes the old one first. At no time do
// two work at once.
func TestChangeOver(t *testing.T) {
	for name, open := range map[string]func(rdb *redis.Client) lock{
		"redsync": func(rdb *redis.Client) lock {
			sync := redsync.New(goredis.NewPool(rdb))
			return func(ctx context.Context) (func() error, error) {
				m := sync.NewMutex("old", redsync.WithExpiry(time.Minute), redsync.WithRetryDelay(time.Millisecond), redsync.WithTries(1<<30))
				return func() error { _, err := m.UnlockContext(context.WithoutCancel(ctx)); return err }, m.LockContext(ctx)
			}
		},
		"redislock": func(rdb *redis.Client) lock {
			locker := redislock.New(rdb)
			return func(ctx context.Context) (func() error, error) {
				l, err := locker.Obtain(ctx, "old", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
				return func() error { return l.Release(context.WithoutCancel(ctx)) }, err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.Start(t).Client()
			s := semaphore(t, rdb, "new", 1, nil)
			old, anew := open(rdb), lock(func(ctx context.Context) (func() error, error) {
				p, err := s.Acquire(ctx)
				if err != nil {
					return nil, err
				}
				return p.Release, nil
			})
			both := lock(func(ctx context.Context) (func() error, error) {
				first, err := old(ctx)
				if err != nil {
					return nil, err
				}
				second, err := anew(ctx)
				if err != nil {
					return nil, errors.Join(err, first())
				}
				return func() error { return errors.Join(second(), first()) }, nil
			})
			worksAlone(t, "old and both", old, old, both, both)
			worksAlone(t, "both and new", both, both, anew, anew)
			// And it is needed: old and new know nothing of each other.
			unlock, err := old(t.Context())
			expect.OK(t, err)
			beside, err := anew(t.Context())
			if err != nil {
				t.Fatalf("the new one waits for the old: %v", err)
			}
			if err := errors.Join(unlock(), beside()); err != nil {
				t.Error(err)
			}
		})
	}
}

// worksAlone has programs take turns, and fails if two are at work at once.
func worksAlone(t *testing.T, what string, programs ...lock) {
	t.Helper()
	var at, most atomic.Int64
	failures := make(chan error, len(programs))
	for _, take := range programs {
		go func() {
			var failure error
			for range 50 {
				unlock, err := take(t.Context())
				if err != nil {
					failure = err
					break
				}
				most.Store(max(most.Load(), at.Add(1)))
				at.Add(-1)
				failure = errors.Join(failure, unlock())
			}
			failures <- failure
		}()
	}
	for range programs {
		if err := <-failures; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%s: %d at work at once", what, most.Load())
	}
}

// readPID is the process id that a command says first.
func readPID(t *testing.T, out io.Reader) int {
	t.Helper()
	line, err := bufio.NewReader(out).ReadString('\n')
	expect.OK(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	expect.OK(t, err)
	return pid
}
