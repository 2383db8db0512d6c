package redisengine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/engines/redisengine"
	"sema/enginetest"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

// pair is a master and a replica, with a proxy between them.
type pair struct {
	master, replica *redistest.Server
	link            *redistest.Proxy
}

func startPair(t testing.TB) *pair {
	p := &pair{master: redistest.Start(t, "--repl-diskless-sync-delay", "0")}
	p.link = redistest.StartProxy(t, p.master.Addr())
	p.replica = redistest.Start(t)
	follows := p.replica.Client()
	expect.OK(t, follows.Do(expect.Within(t), "REPLICAOF", "127.0.0.1", p.link.Port()).Err())
	p.inStep(t)
	return p
}

// inStep waits until the replica has all of the master's writes: it writes one
// more, and waits for that one.
func (p *pair) inStep(t testing.TB) {
	conn := p.master.Client().Conn()
	defer func() { _ = conn.Close() }()
	expect.Until(t, "replication", func() bool {
		ctx := expect.Within(t)
		expect.OK(t, conn.Set(ctx, "ready", 1, time.Minute).Err())
		n, err := conn.Wait(ctx, 1, 100*time.Millisecond).Result()
		expect.OK(t, err)
		return n == 1
	})
}

// engine returns an engine with Options.Replicas.
func (p *pair) engine(t testing.TB, replicas int) sema.Engine {
	rdb := connect(t, redis.Options{Addr: p.master.Addr()})
	e, err := redisengine.New(rdb, &redisengine.Options{Replicas: replicas})
	expect.OK(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// copied acquires a permit that the replica has: a busy one may answer too late for WAIT.
func copied(t testing.TB, s *sema.Semaphore) (held *sema.Permit) {
	expect.Until(t, "a grant that the replica has", func() bool {
		p, err := s.TryAcquire(expect.Within(t))
		held = p
		return err == nil
	})
	return held
}

func TestReplicasMustBeANumber(t *testing.T) {
	rdb := connect(t, redis.Options{Addr: "127.0.0.1:1"})
	for _, n := range []int{-1, redisengine.MaxReplicas + 1} {
		_, err := redisengine.New(rdb, &redisengine.Options{Replicas: n})
		var wrong *sema.ArgumentError
		if !errors.As(err, &wrong) || wrong.Value != n {
			t.Errorf("Replicas %d: %v", n, err)
		}
	}
}

func TestPromisesWithReplicas(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(tb testing.TB) enginetest.Store {
		p := startPair(tb)
		return enginetest.Store{Client: func(tb testing.TB) sema.Engine { return p.engine(tb, 1) }}
	})
}

// A grant that no replica confirms does not count: the client gives it back,
// and the caller's error says why.
func TestGrantWithoutReplicaIsGivenBack(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	s := openSem(t, p.engine(t, 1), "x", 3, &sema.Options{Lease: 30 * time.Second})
	held := copied(t, s)
	p.link.Silence()
	ctx, cancel := context.WithTimeout(expect.Within(t), 500*time.Millisecond)
	defer cancel()
	if got, err := s.TryAcquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("cut off from its replica, the master gave %v, %v", got, err)
	}
	var e *engine.Error
	if got, err := s.TryAcquire(expect.Within(t)); !errors.Is(err, redisengine.ErrTooFewReplicas) || !errors.As(err, &e) || !e.Temporary || e.NotExecuted || e.Hint == "" {
		t.Fatalf("cut off from its replica, the master gave %v, %v", got, err)
	}
	expect.OK(t, held.Release()) // needs no replica
	expect.Until(t, "giving back", func() bool { return stateOf(t, s).Used == 0 })
	p.link.Resume()
	wholeLimit(t, s, 3)
}

// A permit that another client's release hands over counts when a replica has
// confirmed it.
func TestHandOffWaitsForReplica(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	o := sema.Options{Lease: 15 * time.Second}
	one := openSem(t, p.engine(t, 1), "x", 1, &o)
	failed := make(chan error, 100)
	o.Observer.RenewFailed = func(f sema.Event) { failed <- f.Err }
	other := openSem(t, p.engine(t, 1), "x", 1, &o)
	held := copied(t, one)
	w := queue(t, other)
	p.link.Silence()
	expect.OK(t, held.Release())
	for err := range failed {
		if errors.Is(err, redisengine.ErrTooFewReplicas) {
			break
		} else if e := (*engine.Error)(nil); !errors.As(err, &e) || !e.Busy { // else it had no answer in time
			t.Errorf("told %v", err)
		}
	}
	if n := len(w.got); n > 0 {
		t.Error("a hand-off that no replica has was given to its caller")
	}
	p.link.Resume()
	expect.OK(t, w.permit(t).Release())
}

// A holder whose renewals no replica confirms learns of the loss before its
// lease ends.
func TestHolderWithoutReplicaIsTold(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	s := openSem(t, p.engine(t, 1), "x", 1, &sema.Options{Lease: 900 * time.Millisecond})
	held := copied(t, s)
	p.link.Silence()
	<-held.Context(expect.Within(t)).Done()
	expect.Is(t, held.Err(), sema.ErrLost)
}

// What a failover forgets: the master loses the connection to its replica and
// goes on for a while; then the replica takes its place.
func TestWhatAFailoverForgets(t *testing.T) {
	const want = 20
	for _, replicas := range []int{0, 1} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			p := startPair(t)
			ctx := expect.Within(t)
			s := session(t, p.engine(t, replicas), "x")
			before := s.request(protocol.Ask, 1, time.Minute)
			before.Limit = 2 * want
			expect.Until(t, "the replica has the first grant", func() bool { // a busy replica may answer too late for WAIT
				_, err := s.try(whole, before)
				return err == nil
			})
			p.link.Silence()
			granted := 0
			for i := range want {
				r := s.request(protocol.Ask, uint64(2+i), time.Minute)
				short, cancel := whole, func() {}
				if replicas > 0 { // the call waits for the replica
					short, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
				}
				if reply, err := s.try(short, r); err == nil && reply.Answers[0].Status == protocol.Granted {
					granted++
				}
				cancel()
			}
			p.master.Kill()
			expect.OK(t, p.replica.Client().Do(ctx, "REPLICAOF", "NO", "ONE").Err())
			known := stateOf(t, openSem(t, engineAt(t, p.replica.Addr()), "x", 1, nil)).Used
			t.Logf("Replicas %d: of 1 grant before and %d in a partition, %d were told; the new master knows of %d", replicas, want, 1+granted, known)
			if replicas > 0 && known != 1+granted {
				t.Errorf("%d grants were told, and the new master knows of %d", 1+granted, known)
			}
			if replicas == 0 && granted != want {
				t.Errorf("%d of %d were granted", granted, want)
			}
		})
	}
}

// A cluster's node waits for its own replicas.
func TestReplicasInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	e, err := redisengine.New(rdb, &redisengine.Options{Replicas: 1})
	expect.OK(t, err)
	t.Cleanup(func() { _ = e.Close() })
	s := openSem(t, e, "x", 1, nil)
	if _, err := s.TryAcquire(expect.Within(t)); !errors.Is(err, redisengine.ErrTooFewReplicas) {
		t.Fatalf("without any replica: %v", err)
	}
	node, err := rdb.MasterForKey(expect.Within(t), "sema:{x}:state")
	expect.OK(t, err)
	replica := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(redistest.FreePort(t)))
	id, err := node.Do(expect.Within(t), "CLUSTER", "MYID").Text()
	expect.OK(t, err)
	follows := replica.Client()
	bus, err := c.Nodes[0].Client().ConfigGet(expect.Within(t), "cluster-port").Result()
	expect.OK(t, err)
	expect.OK(t, follows.Do(expect.Within(t), "CLUSTER", "MEET", "127.0.0.1", c.Nodes[0].Port(), bus["cluster-port"]).Err())
	expect.Until(t, "replication", func() bool { return follows.Do(expect.Within(t), "CLUSTER", "REPLICATE", id).Err() == nil })
	expect.Until(t, "the replica being in step", func() bool {
		info, err := follows.Info(expect.Within(t), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	expect.OK(t, copied(t, s).Release())
}

// BenchmarkReplicas measures the cost of the option: for an acquisition with
// its release, and for a hand-off between two clients.
func BenchmarkReplicas(b *testing.B) {
	p := startPair(b)
	for _, replicas := range []int{0, 1} {
		one, other := openSem(b, p.engine(b, replicas), "x", 1, nil), openSem(b, p.engine(b, replicas), "x", 1, nil)
		b.Run(fmt.Sprintf("replicas=%d/pair", replicas), func(b *testing.B) {
			for b.Loop() {
				expect.OK(b, acquire(b, one).Release())
			}
		})
		b.Run(fmt.Sprintf("replicas=%d/hand-off", replicas), func(b *testing.B) {
			held := acquire(b, one)
			for b.Loop() {
				b.StopTimer()
				w := queue(b, other)
				b.StartTimer()
				expect.OK(b, held.Release())
				held = w.permit(b)
				one, other = other, one
			}
			expect.OK(b, held.Release())
		})
	}
}
