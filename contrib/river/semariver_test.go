package semariver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"sema"
	"sema/contrib/river"
	"sema/each"
	"sema/engines/memengine"
	"sema/sematest"
)

// Three clients with ten workers each work on jobs of two kinds. No cap is exceeded, and each job is
// worked on.
func TestClients(t *testing.T) {
	g, e, c := newGround(t), memengine.New(), newAtOnce()
	t.Cleanup(func() { must(t, e.Close()) })
	const mails, reports, ofKind, inAll = 120, 40, 2, 3
	g.add(mail{}, mails, nil)
	g.add(report{}, reports, nil)
	for range 3 {
		sem := open(t, e, "jobs", inAll, &sema.Options{Caps: sema.Caps{ofKind}})
		limiter, err := semariver.New(semariver.Limit{Semaphore: sem, Wait: 200 * time.Millisecond, Back: 200 * time.Millisecond})
		must(t, err)
		g.start(limiter, quick(10, func(ctx context.Context, job *rivertype.JobRow) error {
			c.work(job.Kind, fmt.Sprint(job.ID))
			return ctx.Err()
		}, limiter))
	}
	g.allDone(mails + reports)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most["mail"] > ofKind || c.most["report"] > ofKind || c.most[""] != inAll || len(c.done) != mails+reports {
		t.Errorf("%v at once, %d were worked on; want %d of a kind and %d in all, and %d", c.most, len(c.done), ofKind, inAll, mails+reports)
	}
}

// While the cap of one kind is reached, jobs of another one are worked on, though
// they came later; those of the first are left alone, and none has failed, though
// each has one attempt. This holds without Driver as well, at a price.
func TestOneKindDoesNotHoldUpAnother(t *testing.T) {
	g := newGround(t)
	e := sematest.New(t)
	newGroup := func() *each.Group {
		group, err := each.New(e, "jobs", 1, nil)
		must(t, err)
		t.Cleanup(func() { must(t, group.Close()) })
		return group
	}
	permit, err := newGroup().Acquire(t.Context(), "mail")
	must(t, err)
	const mails = 300
	g.add(mail{}, mails, &river.InsertOpts{MaxAttempts: 1})
	limiter, err := semariver.New(semariver.Limit{Group: newGroup(), Wait: 100 * time.Millisecond})
	must(t, err)
	var done atomic.Int64
	g.start(limiter, quick(2, func(_ context.Context, job *rivertype.JobRow) error {
		if job.Kind == "report" {
			done.Add(1)
		}
		return nil
	}, limiter))
	const taken = "kind = 'mail' AND metadata->>'snoozes' IS NOT NULL"
	until(t, "a mail has waited in vain", func() bool { return g.count(taken) > 0 })
	g.add(report{}, 10, &river.InsertOpts{MaxAttempts: 1})
	until(t, "the reports are done", func() bool { return done.Load() == 10 })
	// Each that was taken waited for a tenth of a second, or came together with such
	// a one.
	if n := g.count(taken); n > mails/2 {
		t.Errorf("%d of %d jobs were taken; want few", n, mails)
	}
	must(t, permit.Release())
	g.allDone(mails + 10)
}

// If a tenant floods the queue and its cap is reached, the next tenant still gets the free permits.
func TestAFloodLeavesWorkersToOthers(t *testing.T) {
	const flood, others = 60, 20
	g, e := newGround(t), memengine.New()
	t.Cleanup(func() { must(t, e.Close()) })
	sem := open(t, e, "jobs", 4, &sema.Options{Caps: sema.Caps{2}})
	tenant := func(_ context.Context, job *rivertype.JobRow) []string { return []string{job.Kind} } // with a Key Driver takes jobs of all kinds
	limiter, err := semariver.New(semariver.Limit{Semaphore: sem, Key: tenant})
	must(t, err)
	g.add(mail{}, flood, nil)
	g.add(report{}, others, nil)
	done := make(chan string, flood+others)
	g.start(limiter, quick(10, func(_ context.Context, job *rivertype.JobRow) error {
		time.Sleep(100 * time.Millisecond)
		done <- job.Kind
		return nil
	}, limiter))
	g.allDone(flood + others)
	place := 1
	for <-done != "report" {
		place++
	}
	if place > 30 {
		t.Errorf("the first of the others was done as number %d of %d", place, flood+others)
	}
	t.Logf("the first of the others was done as number %d of %d", place, flood+others)
}

// The engine is away: jobs are snoozed, and none has failed.
func TestOutage(t *testing.T) {
	g, e := newGround(t), sematest.New(t)
	sem := open(t, e, "jobs", 3, &sema.Options{Caps: sema.Caps{2}})
	limiter, err := semariver.New(semariver.Limit{Semaphore: sem, Wait: 50 * time.Millisecond, Back: 50 * time.Millisecond})
	must(t, err)
	back := e.Inject(sematest.Fault{Err: sematest.Unreachable(), Times: sematest.Always})
	g.add(mail{}, 20, &river.InsertOpts{MaxAttempts: 1})
	g.start(limiter, quick(5, func(context.Context, *rivertype.JobRow) error { return nil }, limiter))
	until(t, "jobs go back", func() bool { return g.count("metadata->>'snoozes' IS NOT NULL") > 3 })
	back()
	g.allDone(20)
}

// A job whose permit is lost is cancelled, and tried again, though its worker
// returns nil.
func TestLost(t *testing.T) {
	g := newGround(t)
	e := sematest.New(t)
	sem := open(t, e, "jobs", 1, nil)
	limiter, err := semariver.New(semariver.Limit{Semaphore: sem, Back: time.Millisecond})
	must(t, err)
	g.add(mail{}, 1, &river.InsertOpts{MaxAttempts: 1})
	var calls atomic.Int64
	g.start(limiter, quick(2, func(ctx context.Context, job *rivertype.JobRow) error {
		if calls.Add(1) == 1 {
			e.Lose("jobs")
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, sema.ErrLost) {
				t.Errorf("cause %v", cause)
			}
		}
		return nil
	}, limiter))
	g.allDone(1)
	if n := calls.Load(); n != 2 {
		t.Errorf("called %d times; want 2", n)
	}
}

// With a Semaphore few jobs of a kind are taken while one of the kind waits; a job whose worker
// fails has failed.
func TestSemaphore(t *testing.T) {
	g := newGround(t)
	e := sematest.New(t)
	newSemaphore := func() *sema.Semaphore {
		sem := open(t, e, "jobs", 1, nil)
		return sem
	}
	permit, err := newSemaphore().Acquire(t.Context())
	must(t, err)
	limiter, err := semariver.New(semariver.Limit{Semaphore: newSemaphore(), Wait: 100 * time.Millisecond})
	must(t, err)
	g.add(mail{}, 300, &river.InsertOpts{MaxAttempts: 2})
	g.start(limiter, quick(2, func(_ context.Context, job *rivertype.JobRow) error {
		if job.Attempt == 1 {
			return errors.New("fails")
		}
		return nil
	}, limiter))
	until(t, "jobs have waited in vain", func() bool { return g.count("metadata->>'snoozes' IS NOT NULL") > 3 })
	if n := g.count("metadata->>'snoozes' IS NULL"); n < 150 {
		t.Errorf("%d of 300 jobs were not taken; want most", n)
	}
	must(t, permit.Release())
	until(t, "all are done", func() bool {
		return g.count("state = 'completed' AND attempt = 2 AND array_length(errors, 1) = 1") == 300
	})
}

// Keys and weights may depend on the job.
func TestKeyAndWeight(t *testing.T) {
	g := newGround(t)
	e := sematest.New(t)
	group, err := each.New(e, "queues", 5, nil)
	must(t, err)
	t.Cleanup(func() { must(t, group.Close()) })
	limiter, err := semariver.New(semariver.Limit{
		Group:  group,
		Key:    func(_ context.Context, job *rivertype.JobRow) []string { return []string{job.Queue, "alice"} },
		Weight: func(_ context.Context, job *rivertype.JobRow) int { return 3 * job.Priority },
	})
	must(t, err)
	g.start(limiter, quick(1, func(context.Context, *rivertype.JobRow) error {
		if held := e.Held("queues/default"); len(held) != 1 || held[0].Weight != 3 || held[0].Key != "alice" {
			t.Errorf("%v are held; want one of weight 3, of alice", held)
		}
		return nil
	}, limiter))
	g.add(mail{}, 1, nil)
	g.allDone(1)
	g.add(mail{}, 1, &river.InsertOpts{MaxAttempts: 1, Priority: 2})
	until(t, "what is too heavy has failed", func() bool { return g.count("state = 'discarded'") == 1 })
}

func TestBadLimits(t *testing.T) {
	sem := open(t, memengine.New(), "jobs", 1, nil)
	for _, bad := range []semariver.Limit{
		{},
		{Semaphore: sem, Back: -1},
	} {
		var argument *sema.ArgumentError
		if _, err := semariver.New(bad); !errors.As(err, &argument) || !strings.HasPrefix(err.Error(), "semariver: ") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
