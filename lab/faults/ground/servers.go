package ground

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/redistest"
)

// look is how often something is looked at that tells nobody when it changes.
const look = 20 * time.Millisecond

// node is one server of a ground.
type node struct {
	*redistest.Server
	admin *redis.Client           // straight to the server, with all rights
	known string                  // the address by which the others know it
	peers *redistest.Proxy        // at that address; nil: it is the server's own
	sites [Sites]*redistest.Proxy // where the workers of each site reach it
	clock *clock                  // its clock; nil: the machine's
}

// servers is a ground of Redis servers.
type servers struct {
	base
	links    [Sites]Link
	nodes    []*node // with data
	watchers []*node // Sentinels
	clients  [Sites]redis.UniversalClient

	// masters are the nodes that take writes now; an error: that is open.
	masters func(ctx context.Context) ([]*node, error)
	// whole reports nil when all nodes have their places and are in sync.
	whole func(ctx context.Context) error
}

// Link implements Ground.
func (s *servers) Link(site int) Link { return s.links[site] }

// add makes a node of a server. addr is what the workers' proxies forward to.
func (s *servers) add(srv *redistest.Server, addr string, peers *redistest.Proxy, c *clock) *node {
	n := &node{Server: srv, known: srv.Addr(), peers: peers, clock: c}
	if peers != nil {
		n.known = peers.Addr()
	}
	for i := range n.sites {
		n.sites[i] = redistest.StartProxy(s, addr)
	}
	n.admin = redis.NewClient(&redis.Options{
		Addr: srv.Addr(), MaxRetries: -1, DialTimeout: patience, ReadTimeout: patience, ContextTimeoutEnabled: true,
	})
	s.Cleanup(func() { _ = n.admin.Close() })
	return n
}

// connect makes the links, once all nodes are there. The workers are given the
// addresses of entries.
func (s *servers) connect(scheme, path string, entries []*node) {
	for site := range Sites {
		l := Link{Via: map[string]string{}}
		for _, n := range slices.Concat(s.nodes, s.watchers) {
			l.Via[n.known] = n.sites[site].Addr()
		}
		var addrs []string
		for _, n := range entries {
			addrs = append(addrs, n.sites[site].Addr())
		}
		l.URL = scheme + "://" + strings.Join(addrs, ",") + path
		s.links[site] = l
	}
	s.version = s.nodes[0].Version()
}

// ready opens the ground's own clients, one through each site, and waits until all works.
// readable says that proxies can read what passes.
func (s *servers) ready(ctx context.Context, readable bool, faults ...[]Fault) (Ground, error) {
	for site := range Sites {
		c, err := s.links[site].Redis()
		if err != nil {
			return nil, err
		}
		s.clients[site] = c
		s.Cleanup(func() { _ = c.Close() })
	}
	s.faults = append(slices.Concat(faults...), networkFaults(readable, false, s.wires)...)
	return s, s.Settle(ctx)
}

// Settle implements Ground.
func (s *servers) Settle(ctx context.Context) error {
	return until(ctx, func(ctx context.Context) error {
		if err := s.whole(ctx); err != nil {
			return err
		}
		for site, c := range s.clients {
			if err := probe(ctx, c, len(s.nodes)); err != nil {
				return fmt.Errorf("through site %d: %w", site, err)
			}
		}
		return nil
	})
}

// probe writes a key. Of a cluster it writes so many that each master gets one.
func probe(ctx context.Context, c redis.UniversalClient, nodes int) error {
	keys := 1
	if _, ok := c.(*redis.ClusterClient); ok {
		keys = 8 * nodes
	}
	for i := range keys {
		if err := c.Set(ctx, fmt.Sprintf("sema:ground:%d", i), "", time.Minute).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Left implements Ground.
func (s *servers) Left(ctx context.Context) ([]string, error) {
	left := map[string]bool{}
	masters, err := s.masters(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range masters {
		keys, err := scan(ctx, n.admin, "sema:*")
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			ttl, err := n.admin.PTTL(ctx, key).Result()
			if err != nil {
				return nil, err
			}
			if ttl == -1 { // as PTTL says that there is none
				left[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(left)), nil
}

// master picks one of the masters of the moment.
func (s *servers) master(ctx context.Context, r *rand.Rand) (*node, error) {
	var found *node
	err := until(ctx, func(ctx context.Context) error {
		all, err := s.masters(ctx)
		if err != nil {
			return err
		}
		found = all[r.IntN(len(all))]
		return nil
	})
	return found, err
}

// proxies are those between a site and the nodes; site -1: between all sites and the nodes.
func (s *servers) proxies(site int, nodes ...*node) (list []*redistest.Proxy) {
	for _, n := range nodes {
		for i, p := range n.sites {
			if site < 0 || site == i {
				list = append(list, p)
			}
		}
	}
	return list
}

// wires are those between a site and all servers.
func (s *servers) wires(site int) []*redistest.Proxy { return s.proxies(site, s.all()...) }

// all are the nodes with data and the Sentinels.
func (s *servers) all() []*node { return slices.Concat(s.nodes, s.watchers) }

// until asks again until there is no error, or ctx ends. It then returns the
// last error from before that end, which says what was missing.
func until(ctx context.Context, ask func(context.Context) error) error {
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-time.After(look):
		}
	}
}

// writable waits until the server itself takes a write.
func (n *node) writable(ctx context.Context) error {
	return until(ctx, func(ctx context.Context) error { return write(ctx, n.admin) })
}

// write writes to one server. A node of a cluster takes only some keys.
func write(ctx context.Context, c redis.Cmdable) (err error) {
	_, err = writeKey(ctx, c)
	return err
}

// writeKey says what it wrote.
func writeKey(ctx context.Context, c redis.Cmdable) (key string, err error) {
	for i := range 64 {
		key = fmt.Sprintf("ground:{%d}", i)
		err = c.Set(ctx, key, "", time.Minute).Err()
		if err == nil || !strings.HasPrefix(err.Error(), "MOVED") {
			break
		}
	}
	return key, err
}

// replication is what the server says of its part in it.
func (n *node) replication(ctx context.Context) (map[string]string, error) {
	info, err := n.admin.InfoMap(ctx, "replication").Result()
	return info["Replication"], err
}
