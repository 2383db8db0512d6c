package ground

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
)

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
