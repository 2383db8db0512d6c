package redistest

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestStandaloneRestartsEmptyOnTheSamePort(t *testing.T) {
	s := Start(t)
	ctx := context.Background()
	c := s.Client()
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()
	s.Restart()
	if s.Addr() != addr {
		t.Fatalf("address changed from %s to %s", addr, s.Addr())
	}
	if n, err := c.DBSize(ctx).Result(); err != nil || n != 0 {
		t.Fatalf("after restart: %d keys, %v; want an empty server", n, err)
	}
}

func TestClusterServesEverySlot(t *testing.T) {
	c := StartCluster(t, 3).Client()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := c.Set(context.Background(), key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSentinelPromotesTheReplica(t *testing.T) {
	s := StartSentinel(t)
	s.Master.Kill()
	s.AwaitMaster(s.Replica)
}

func TestProxyFaults(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, ReadTimeout: patience, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	ctx := context.Background()
	if err := c.Incr(ctx, "n").Err(); err != nil {
		t.Fatal(err)
	}
	p.LoseReplies()
	if err := c.Incr(ctx, "n").Err(); err == nil {
		t.Fatal("the reply was not lost")
	}
	p.Resume()
	if n, err := c.Get(ctx, "n").Int(); err != nil || n != 2 {
		t.Fatalf("n = %d, %v; the lost reply's request should have been executed", n, err)
	}
	p.Silence()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := c.Incr(short, "n").Err(); err == nil {
		t.Fatal("a silent proxy answered")
	}
	p.Resume()
	p.Refuse()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Fatal("a refusing proxy answered")
	}
}

// Two tests that start servers at once, or one that restarts its own, never meet
// on a port.
func TestAPortIsGivenToOneTest(t *testing.T) {
	port := FreePort(t)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if c, err := net.ListenPacket("udp", addr); err == nil {
		_ = c.Close()
		t.Errorf("port %d is not marked as taken", port)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("nothing can listen there: %v", err)
	}
	_ = l.Close()
}
