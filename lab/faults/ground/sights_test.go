package ground

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
)

var errNotSeen = errors.New("nothing to see")

// changed is a fault that shows in a value that is another than before.
func changed[G Ground, V comparable](read func(context.Context, G) (V, error)) func(*testing.T, G) func(context.Context, Extent) error {
	return func(t *testing.T, g G) func(context.Context, Extent) error {
		before, err := read(expect.Within(t), g)
		expect.OK(t, err)
		return func(ctx context.Context, _ Extent) error {
			now, err := read(ctx, g)
			if err == nil && now == before {
				err = errNotSeen
			}
			return err
		}
	}
}

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
			return ctx.Err()
		})
	}
}

// forgot is a server that has lost what was written before.
func forgot(t *testing.T, s *servers) func(context.Context, Extent) error {
	key := func(i int) string { return fmt.Sprintf("sema:{forgotten%d}:state", i) }
	many := 1 + 8*len(s.nodes)
	for i := range many {
		expect.OK(t, s.clients[0].Set(expect.Within(t), key(i), "x", time.Minute).Err())
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
		expect.OK(t, err)
		for _, n := range masters {
			keys, err := scan(ctx, n.admin, "sema:{*}:state")
			expect.OK(t, err)
			all += len(keys)
		}
		return all
	}
	before := count(expect.Within(t))
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

// eachMaster prepares each master. The returned check is nil once the check of
// one master is.
func eachMaster(t *testing.T, s *servers, prepare func(*node) func(context.Context) error) func(context.Context, Extent) error {
	masters, err := s.masters(expect.Within(t))
	expect.OK(t, err)
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
			ctx := expect.Within(t)
			c := redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
			t.Cleanup(func() { _ = c.Close() })
			if subscribed {
				sub := c.Subscribe(ctx, "x")
				t.Cleanup(func() { _ = sub.Close() })
				_, err := sub.Receive(ctx)
				expect.OK(t, err)
				return func(ctx context.Context) error {
					if _, err := sub.ReceiveTimeout(ctx, 100*time.Millisecond); err == nil || isTimeout(err) {
						return fmt.Errorf("the subscription lives: %v", err)
					}
					return nil
				}
			}
			conn := c.Conn()
			t.Cleanup(func() { _ = conn.Close() })
			expect.OK(t, conn.Ping(ctx).Err())
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
		expect.OK(t, script.Load(expect.Within(t), n.admin).Err())
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
				for {
					asked := time.Now()
					now, err := n.admin.Time(ctx).Result()
					expect.OK(t, err)
					if ahead := now.Sub(asked); time.Since(asked) < by.Abs()/10 {
						return ahead
					}
				}
			}
			before := off(expect.Within(t))
			return func(ctx context.Context) error {
				if d := off(ctx) - before - by; d.Abs() > by.Abs()/2 {
					return fmt.Errorf("%v beside %v", d, by)
				}
				return nil
			}
		})
	}
}

// wires says how each fault of the network shows; network makes sights of them
// for every ground of servers.
var wires = map[string]func(took time.Duration, err error) bool{
	"network: silence":       failing,
	"network: refused":       failing,
	"network: replies lost":  failing,
	"network: requests lost": failing,
	"network: latency":       slow(least(400 * time.Millisecond)),
	"network: slices":        slow(least(100 * time.Millisecond)),
	"network: bandwidth":     slow(least(500 * time.Millisecond)),
	"network: late copies":   failing,
	"network: resets":        failing,
}

var network = wired(func(ctx context.Context, s *servers, site int) error {
	return s.clients[site].Set(ctx, "sema:ground:wire", strings.Repeat("x", 20_000), time.Minute).Err()
})

var subscriptions = map[string]sight{"network: subscriptions half open": halfOpen}

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

// wired are the faults of the network, as they show in a large message through a site.
func wired[G Ground](send func(ctx context.Context, g G, site int) error) map[string]func(*testing.T, G) func(context.Context, Extent) error {
	all := map[string]func(*testing.T, G) func(context.Context, Extent) error{}
	for name, see := range wires {
		all[name] = func(t *testing.T, g G) func(context.Context, Extent) error {
			return wire(t, see, func(ctx context.Context, site int) error { return send(ctx, g, site) })
		}
	}
	return all
}

// wire is a fault of the network: see has the time that a message through a site
// that is hit took, and its error. A site that is not hit is as ever.
func wire(t *testing.T, see func(took time.Duration, err error) bool, send func(ctx context.Context, site int) error) func(context.Context, Extent) error {
	ping := func(ctx context.Context, site int) (time.Duration, error) {
		began := time.Now()
		err := send(ctx, site)
		return time.Since(began), err
	}
	seen := map[int]bool{} // some pieces are hit, so not all sites at once
	return func(ctx context.Context, e Extent) error {
		in, out := hit(e)
		for _, site := range in {
			if seen[site] {
				continue
			}
			second, cancel := context.WithTimeout(ctx, time.Second)
			took, err := ping(second, site)
			cancel()
			if !see(took, err) {
				return fmt.Errorf("site %d: %v, %v", site, took, err)
			}
			seen[site] = true
		}
		if out >= 0 {
			_, err := ping(ctx, out)
			for err != nil && ctx.Err() == nil { // a busy machine is slow too, but not for as long as the fault lasts
				_, err = ping(ctx, out)
			}
			if err != nil {
				t.Errorf("site %d, which is not hit: %v", out, err)
			}
		}
		return nil
	}
}

func slow(at least) func(time.Duration, error) bool {
	return func(took time.Duration, _ error) bool { return took >= time.Duration(at) }
}

type least time.Duration

func failing(_ time.Duration, err error) bool { return err != nil }

// halfOpen sees the fault by a subscription that receives no messages.
func halfOpen(t *testing.T, s *servers) func(context.Context, Extent) error {
	ctx := expect.Within(t)
	var subs []*redis.PubSub
	for _, c := range s.clients {
		sub := c.Subscribe(ctx, "sema:half-open")
		t.Cleanup(func() { _ = sub.Close() })
		_, err := sub.Receive(ctx)
		expect.OK(t, err)
		subs = append(subs, sub)
	}
	return func(ctx context.Context, e Extent) error {
		expect.OK(t, s.clients[0].Publish(ctx, "sema:half-open", "x").Err())
		in, out := hit(e)
		for _, site := range in {
			if m, err := subs[site].ReceiveTimeout(ctx, 200*time.Millisecond); err == nil {
				return fmt.Errorf("site %d heard %v", site, m)
			}
		}
		if out >= 0 {
			_, err := subs[out].ReceiveTimeout(ctx, expect.Patience)
			return err
		}
		return nil
	}
}
