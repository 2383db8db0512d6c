package ground

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/redistest"
)

// failoverTime is how long a step of a failover may take. One that was given up is
// tried again after twice that.
const failoverTime = 1500 * time.Millisecond

// newSentinel starts a master, two replicas and three Sentinels. Servers know
// each other by the addresses of proxies, so that they can be cut off from each
// other while workers still reach them. In "sentinel-replicas" a grant counts when
// both replicas have it.
func newSentinel(ctx context.Context, kind string, h *host) (Ground, error) {
	s := &servers{base: base{host: h, kind: kind}}
	c := newClocks(ctx, h)
	for i := range 3 {
		own, env := c.next()
		peers := redistest.StartProxy(h, "")
		args := []string{
			"--replica-announce-ip", "127.0.0.1", "--replica-announce-port", port(peers.Addr()),
			"--repl-diskless-sync-delay", "0", "--lua-time-limit", "200",
		}
		if i > 0 {
			args = append(args, "--replicaof", "127.0.0.1 "+port(s.nodes[0].known))
		}
		srv := redistest.StartEnv(h, env, args...)
		peers.Forward(srv.Addr())
		s.nodes = append(s.nodes, s.add(srv, srv.Addr(), peers, own))
	}
	if err := until(ctx, func(ctx context.Context) error { return s.nodes[0].inSync(ctx, 2) }); err != nil {
		return nil, err
	}
	for range 3 {
		srv := redistest.StartWatcher(h, s.nodes[0].known, failoverTime)
		w := s.add(srv, srv.Addr(), nil, nil)
		hurry(ctx, w)
		s.watchers = append(s.watchers, w)
	}
	s.connect("redis+sentinel", "/"+redistest.MasterName, s.watchers)
	s.masters = func(ctx context.Context) ([]*node, error) {
		n, err := s.agreed(ctx)
		return []*node{n}, err
	}
	s.whole = s.sentinelWhole
	all := s.serverFaults()
	for i := range all {
		if all[i].Name == pauseWrite {
			// Sentinels publish over the connection on which they ask whether the
			// master lives, and a pause holds that up: they take it for down.
			all[i].Note += "; Sentinels take the master for down"
			all[i].Excuses = forgets
			end := all[i].End
			all[i].End = func(ctx context.Context) error {
				if err := end(ctx); err != nil {
					return err
				}
				return until(ctx, s.sentinelWhole)
			}
		}
	}
	failovers := s.sentinelFaults()
	if kind == "sentinel-replicas" {
		for i := range s.links {
			s.links[i].Replicas = 2
		}
		// What no client can prevent does not come to pass: the replica that is
		// promoted has all grants that count. It may lack places in the queue.
		for _, list := range [][]Fault{all, failovers} {
			for i, f := range list {
				if f.Name == pauseWrite || strings.HasPrefix(f.Name, "sentinel:") {
					list[i].Excuses.Limit = false
				}
			}
		}
	}
	return s.ready(ctx, true, all, failovers)
}

// hurry makes a Sentinel look at all servers every second instead of every ten,
// and demote an old master after two seconds instead of eight. A round is too
// short for the defaults. Servers before 7.0 do not know the command and stay
// slow.
func hurry(ctx context.Context, w *node) {
	_ = w.admin.Do(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", "1000", "PUBLISH-PERIOD", "500").Err()
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}

// inSync returns nil if so many replicas have all of n's writes.
func (n *node) inSync(ctx context.Context, others int) error {
	conn := n.admin.Conn()
	defer func() { _ = conn.Close() }()
	if err := write(ctx, conn); err != nil {
		return err
	}
	got, err := conn.Wait(ctx, others, 200*time.Millisecond).Result()
	if err == nil && int(got) != others {
		err = fmt.Errorf("%d of %d replicas in sync", got, others)
	}
	return err
}

// agreed is the node that all Sentinels that run call the master. It takes writes.
func (s *servers) agreed(ctx context.Context) (*node, error) {
	known := ""
	for _, w := range s.watchers {
		if w.PID() == 0 {
			continue
		}
		addr := redis.NewStringSliceCmd(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.MasterName)
		if err := w.admin.Process(ctx, addr); err != nil {
			return nil, err
		}
		one := net.JoinHostPort(addr.Val()[0], addr.Val()[1])
		if known != "" && one != known {
			return nil, errors.New("the Sentinels differ")
		}
		known = one
	}
	for _, n := range s.nodes {
		if n.known == known {
			return n, write(ctx, n.admin)
		}
	}
	return nil, fmt.Errorf("the Sentinels name a stranger: %q", known)
}

// sentinelWhole reports nil if there is one master, all other nodes are in sync
// with it, and all Sentinels see it so.
func (s *servers) sentinelWhole(ctx context.Context) error {
	master, err := s.agreed(ctx)
	if err != nil {
		return err
	}
	for _, n := range s.nodes {
		is, err := n.replication(ctx)
		if err != nil {
			return err
		}
		switch {
		case n == master:
			if is["role"] != "master" {
				return fmt.Errorf("%s is no master", n.known)
			}
		case is["role"] != "slave" || is["master_link_status"] != "up" || is["master_port"] != port(master.known):
			return fmt.Errorf("%s is a %s, link %s", n.known, is["role"], is["master_link_status"])
		}
	}
	for _, w := range s.watchers {
		if w.PID() == 0 {
			continue
		}
		if err := s.seesAll(ctx, w); err != nil {
			return err
		}
	}
	return master.inSync(ctx, len(s.nodes)-1)
}

// seesAll reports nil if a Sentinel finds nothing wrong with any node.
func (s *servers) seesAll(ctx context.Context, w *node) error {
	c := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", redistest.MasterName)
	if err := w.admin.Process(ctx, c); err != nil {
		return err
	}
	of := c.Val()
	if of["flags"] != "master" || of["num-slaves"] != strconv.Itoa(len(s.nodes)-1) ||
		of["num-other-sentinels"] != strconv.Itoa(len(s.watchers)-1) {
		return fmt.Errorf("a Sentinel sees %s, %s replicas, %s Sentinels", of["flags"], of["num-slaves"], of["num-other-sentinels"])
	}
	r := redis.NewMapStringStringSliceCmd(ctx, "SENTINEL", "REPLICAS", redistest.MasterName)
	if err := w.admin.Process(ctx, r); err != nil {
		return err
	}
	for _, replica := range r.Val() {
		if replica["flags"] != "slave" || replica["master-link-status"] != "ok" {
			return fmt.Errorf("a Sentinel sees a replica %s, link %s", replica["flags"], replica["master-link-status"])
		}
	}
	return nil
}
