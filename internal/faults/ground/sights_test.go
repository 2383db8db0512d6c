package ground

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var errNotSeen = errors.New("nothing to see")

// answered is a fault that shows in what the server says to a write.
func answered(prefix string) sight {
	return func(_ *testing.T, s *servers) func(context.Context, Extent) error {
		return func(ctx context.Context, _ Extent) error {
			return anyNode(s, func(n *node) error { return n.answersOnce(ctx, prefix) })
		}
	}
}

// anyNode is nil if do is for one of the nodes.
func anyNode(s *servers, do func(*node) error) error {
	err := errNotSeen
	for _, n := range s.nodes {
		if err = do(n); err == nil {
			return nil
		}
	}
	return err
}

// mute is a server that does not answer in a while, though it answered before.
func mute(_ *testing.T, s *servers) func(context.Context, Extent) error {
	return func(ctx context.Context, _ Extent) error {
		return anyNode(s, func(n *node) error {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			if err := n.admin.Set(short, "ground:mute", "", time.Second).Err(); short.Err() == nil {
				return fmt.Errorf("it answers: %v", err)
			}
			return nil
		})
	}
}

// forgot is a server that has lost what was written before.
func forgot(t *testing.T, s *servers) func(context.Context, Extent) error {
	key := func(i int) string { return fmt.Sprintf("sema:{forgotten%d}:state", i) }
	many := 1 + 8*len(s.nodes)
	for i := range many {
		must(t, s.clients[0].Set(within(t), key(i), "x", time.Minute).Err())
	}
	return func(ctx context.Context, _ Extent) error {
		for i := range many {
			if err := s.clients[0].Get(ctx, key(i)).Err(); errors.Is(err, redis.Nil) {
				return nil
			}
		}
		return errNotSeen
	}
}

// fewer are semaphores of which one is gone.
func fewer(t *testing.T, s *servers) func(context.Context, Extent) error {
	_ = forgot(t, s) // so that there are some
	count := func(ctx context.Context) (all int) {
		masters, err := s.masters(ctx)
		must(t, err)
		for _, n := range masters {
			keys, err := scan(ctx, n.admin, "sema:{*}:state")
			must(t, err)
			all += len(keys)
		}
		return all
	}
	before := count(within(t))
	return func(ctx context.Context, _ Extent) error {
		if now := count(ctx); now != before-1 {
			return fmt.Errorf("%d semaphores, and %d before", now, before)
		}
		return nil
	}
}

func turnedAway(_ *testing.T, s *servers) func(context.Context, Extent) error {
	return func(context.Context, Extent) error { return s.nodes[0].refused() }
}

// dead is a server that ended.
func dead(_ *testing.T, s *servers) func(context.Context, Extent) error {
	return func(context.Context, Extent) error {
		for _, n := range s.all() {
			if n.PID() == 0 {
				return nil
			}
		}
		return errNotSeen
	}
}

// eachMaster is nil once what was prepared with one of the masters is.
func eachMaster(t *testing.T, s *servers, prepare func(*node) func(context.Context) error) func(context.Context, Extent) error {
	masters, err := s.masters(within(t))
	must(t, err)
	var seen []func(context.Context) error
	for _, n := range masters {
		seen = append(seen, prepare(n))
	}
	return func(ctx context.Context, _ Extent) (err error) {
		for _, see := range seen {
			if err = see(ctx); err == nil {
				return nil
			}
		}
		return err
	}
}

// cutOff is a connection that was there and is not any more.
func cutOff(subscribed bool) sight {
	return func(t *testing.T, s *servers) func(context.Context, Extent) error {
		return eachMaster(t, s, func(n *node) func(context.Context) error {
			ctx := within(t)
			c := redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
			t.Cleanup(func() { _ = c.Close() })
			if subscribed {
				sub := c.Subscribe(ctx, "x")
				t.Cleanup(func() { _ = sub.Close() })
				_, err := sub.Receive(ctx)
				must(t, err)
				return func(ctx context.Context) error {
					if _, err := sub.ReceiveTimeout(ctx, 100*time.Millisecond); err == nil || isTimeout(err) {
						return fmt.Errorf("the subscription lives: %v", err)
					}
					return nil
				}
			}
			conn := c.Conn()
			t.Cleanup(func() { _ = conn.Close() })
			must(t, conn.Ping(ctx).Err())
			return func(ctx context.Context) error {
				if conn.Ping(ctx).Err() == nil {
					return errors.New("the connection lives")
				}
				return nil
			}
		})
	}
}

func scriptsGone(t *testing.T, s *servers) func(context.Context, Extent) error {
	return eachMaster(t, s, func(n *node) func(context.Context) error {
		script := redis.NewScript("return 1")
		must(t, script.Load(within(t), n.admin).Err())
		return func(ctx context.Context) error {
			known, err := script.Exists(ctx, n.admin).Result()
			if err != nil || known[0] {
				return fmt.Errorf("it knows: %v, %v", known, err)
			}
			return nil
		}
	})
}

// stepped is a clock that went so far beside the machine's.
func stepped(by time.Duration) sight {
	return func(t *testing.T, s *servers) func(context.Context, Extent) error {
		return eachMaster(t, s, func(n *node) func(context.Context) error {
			off := func(ctx context.Context) time.Duration {
				now, err := n.admin.Time(ctx).Result()
				must(t, err)
				return time.Until(now)
			}
			before := off(within(t))
			return func(ctx context.Context) error {
				if d := off(ctx) - before - by; d.Abs() > by.Abs()/2 {
					return fmt.Errorf("%v beside %v", d, by)
				}
				return nil
			}
		})
	}
}

// hit are the sites that an extent has, and one that it has not, or -1.
func hit(e Extent) (in []int, out int) {
	out = -1
	for site := range Sites {
		if len(e.Sites) == 0 || slices.Contains(e.Sites, site) {
			in = append(in, site)
		} else {
			out = site
		}
	}
	return in, out
}

// wire is a fault of the network: see has the time that a write through a site
// that is hit took, and its error. A site that is not hit is as ever.
func wire(see func(took time.Duration, err error) bool) sight {
	return func(t *testing.T, s *servers) func(context.Context, Extent) error {
		ping := func(ctx context.Context, site int) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			began := time.Now()
			err := s.clients[site].Set(ctx, "sema:ground:wire", strings.Repeat("x", 20_000), time.Minute).Err()
			return time.Since(began), err
		}
		seen := map[int]bool{} // some pieces are hit, so not all sites at once
		return func(ctx context.Context, e Extent) error {
			in, out := hit(e)
			for _, site := range in {
				if seen[site] {
					continue
				}
				took, err := ping(ctx, site)
				if !see(took, err) {
					return fmt.Errorf("site %d: %v, %v", site, took, err)
				}
				seen[site] = true
			}
			if out >= 0 {
				if _, err := ping(ctx, out); err != nil {
					t.Errorf("site %d, which is not hit: %v", out, err)
				}
			}
			return nil
		}
	}
}

func slow(at least) func(time.Duration, error) bool {
	return func(took time.Duration, _ error) bool { return took >= time.Duration(at) }
}

type least time.Duration

func failing(_ time.Duration, err error) bool { return err != nil }

// deaf is a subscription that hears nothing of what is published.
func deaf(t *testing.T, s *servers) func(context.Context, Extent) error {
	ctx := within(t)
	var subs []*redis.PubSub
	for _, c := range s.clients {
		sub := c.Subscribe(ctx, "sema:deaf")
		t.Cleanup(func() { _ = sub.Close() })
		_, err := sub.Receive(ctx)
		must(t, err)
		subs = append(subs, sub)
	}
	return func(ctx context.Context, e Extent) error {
		must(t, s.clients[0].Publish(ctx, "sema:deaf", "x").Err())
		in, out := hit(e)
		for _, site := range in {
			if m, err := subs[site].ReceiveTimeout(ctx, 200*time.Millisecond); err == nil {
				return fmt.Errorf("site %d heard %v", site, m)
			}
		}
		if out >= 0 {
			_, err := subs[out].ReceiveTimeout(ctx, 5*time.Second)
			return err
		}
		return nil
	}
}

// network are the sights of what every ground of servers has.
var network = map[string]sight{
	"network: silence":       wire(failing),
	"network: refused":       wire(failing),
	"network: replies lost":  wire(failing),
	"network: requests lost": wire(failing),
	"network: latency":       wire(slow(least(400 * time.Millisecond))),
	"network: slices":        wire(slow(least(100 * time.Millisecond))),
	"network: bandwidth":     wire(slow(least(500 * time.Millisecond))),
	"network: late copies":   wire(failing),
	"network: resets":        wire(failing),
}

var subscriptions = map[string]sight{"network: subscriptions half open": deaf}

var anyServer = map[string]sight{
	"server: CLIENT KILL TYPE normal": cutOff(false),
	"server: CLIENT KILL TYPE pubsub": cutOff(true),
	"server: SCRIPT FLUSH":            scriptsGone,
	"server: FLUSHALL":                forgot,
	"server: DEL of a semaphore":      fewer,
	"server: CLIENT PAUSE WRITE":      mute,
	"server: memory full":             answered("OOM"),
	"server: NOREPLICAS":              answered("NOREPLICAS"),
	"server's clock stepped forward":  stepped(step),
	"server's clock stepped back":     stepped(-step),
}

var aloneServer = map[string]sight{
	"server: SIGSTOP, SIGCONT":   mute,
	"server: CLIENT PAUSE ALL":   mute,
	"server: DEBUG SLEEP":        mute,
	"server: BUSY":               answered("BUSY"),
	"server: READONLY":           answered("READONLY"),
	"server: MASTERDOWN":         masterDown,
	"server: MISCONF":            answered("MISCONF"),
	"server: LOADING":            answered("LOADING"),
	"server: maxclients reached": turnedAway,
}

func merged(all ...map[string]sight) map[string]sight {
	m := map[string]sight{}
	for _, one := range all {
		maps.Copy(m, one)
	}
	return m
}

func TestFaultsOfStandalone(t *testing.T) {
	t.Parallel()
	tryAll(t, "standalone", merged(network, subscriptions, anyServer, aloneServer,
		map[string]sight{"server: kill -9, nothing on disk": dead}))
}

func TestFaultsOfStandaloneWithFile(t *testing.T) {
	t.Parallel()
	tryAll(t, "standalone-aof", merged(network, subscriptions, anyServer, aloneServer, map[string]sight{
		"server: kill -9, append-only file":     dead,
		"server: kill -9, append-only file cut": dead,
	}))
}

func TestFaultsOfStandaloneWithTLS(t *testing.T) {
	t.Parallel()
	tryAll(t, "standalone-tls", merged(network, anyServer, aloneServer,
		map[string]sight{"server: kill -9, nothing on disk": dead}))
}

func TestFaultsOfSentinel(t *testing.T) {
	t.Parallel()
	tryAll(t, "sentinel", merged(network, subscriptions, anyServer, map[string]sight{
		"sentinel: kill -9 of the master":             dead,
		"sentinel: SIGSTOP, SIGCONT of the master":    mute,
		"sentinel: SENTINEL FAILOVER":                 replacedMaster,
		"sentinel: master cut off, one site with it":  replacedMaster,
		"sentinel: replicas cut off, then a failover": replicasBehind,
		"sentinel: one Sentinel down":                 dead,
	}))
}

// replacedMaster is another master than before.
func replacedMaster(t *testing.T, s *servers) func(context.Context, Extent) error {
	before, err := s.agreed(within(t))
	must(t, err)
	return func(ctx context.Context, _ Extent) error {
		now, err := s.agreed(ctx)
		if err == nil && now == before {
			err = errNotSeen
		}
		return err
	}
}

// replicasBehind are replicas that do not get what the master gets.
func replicasBehind(t *testing.T, s *servers) func(context.Context, Extent) error {
	return func(ctx context.Context, _ Extent) error {
		n, err := s.agreed(ctx)
		if err != nil {
			return err
		}
		if n.inSync(ctx, len(s.nodes)-1) == nil {
			return errNotSeen
		}
		return nil
	}
}

func TestFaultsOfCluster(t *testing.T) {
	t.Parallel()
	tryAll(t, "cluster", merged(network, subscriptions, anyServer, map[string]sight{
		"cluster: kill -9 of a master":                 dead,
		"cluster: SIGSTOP, SIGCONT of a master":        mute,
		"cluster: CLUSTER FAILOVER":                    otherMasters,
		"cluster: replica cut off, then it takes over": replicaBehind,
		"cluster: slot moves":                          halfMoved,
	}))
}

// otherMasters are others than before.
func otherMasters(t *testing.T, s *servers) func(context.Context, Extent) error {
	before, err := s.masters(within(t))
	must(t, err)
	return func(ctx context.Context, _ Extent) error {
		now, err := s.masters(ctx)
		if err == nil && slices.Equal(now, before) {
			err = errNotSeen
		}
		return err
	}
}

// replicaBehind is a replica that does not get what its master gets.
func replicaBehind(t *testing.T, s *servers) func(context.Context, Extent) error {
	return eachMaster(t, s, func(n *node) func(context.Context) error {
		return func(ctx context.Context) error {
			if n.inSync(ctx, 1) == nil {
				return errNotSeen
			}
			return nil
		}
	})
}

// halfMoved is a semaphore whose keys are on two masters: what needs them all is
// to be tried again.
func halfMoved(t *testing.T, s *servers) func(context.Context, Extent) error {
	keys := func(i int) []string {
		return []string{fmt.Sprintf("sema:{moved%d}:state", i), fmt.Sprintf("sema:{moved%d}:x", i)}
	}
	many := 8 * len(s.nodes)
	for i := range many {
		for _, key := range keys(i) {
			must(t, s.clients[0].Set(within(t), key, "x", time.Minute).Err())
		}
	}
	return func(ctx context.Context, _ Extent) error {
		for i := range many {
			err := s.clients[0].Del(ctx, keys(i)...).Err()
			if err != nil && strings.HasPrefix(err.Error(), "TRYAGAIN") {
				return nil
			}
		}
		return errNotSeen
	}
}

// masterDown is a server that does not even read.
func masterDown(_ *testing.T, s *servers) func(context.Context, Extent) error {
	return func(ctx context.Context, _ Extent) error {
		if err := s.nodes[0].admin.Get(ctx, "x").Err(); err == nil || !strings.HasPrefix(err.Error(), "MASTERDOWN") {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	}
}
