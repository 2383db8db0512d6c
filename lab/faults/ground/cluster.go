package ground

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sema/internal/fixture/redistest"
)

// clusterMasters is how many masters a cluster has, and how many replicas.
const clusterMasters = 3

// newCluster starts three masters with a replica each. Clients and replicas know
// them by the addresses of proxies; what nodes tell each other goes straight.
func newCluster(ctx context.Context, kind string, h *host) (Ground, error) {
	s := &servers{base: base{host: h, kind: kind}}
	c := newClocks(ctx, h)
	var started []*redistest.Server
	for range 2 * clusterMasters {
		own, env := c.next()
		peers := redistest.StartProxy(h, "")
		srv := redistest.StartClusterNode(h, env, "--cluster-announce-ip", "127.0.0.1",
			"--cluster-announce-port", port(peers.Addr()), "--lua-time-limit", "200")
		peers.Forward(srv.Addr())
		started = append(started, srv)
		s.nodes = append(s.nodes, s.add(srv, srv.Addr(), peers, own))
	}
	redistest.FormCluster(h, started[:clusterMasters], started[clusterMasters:])
	s.connect("redis+cluster", "", s.nodes)
	s.masters = s.clusterMasters
	s.whole = s.clusterWhole
	return s.ready(ctx, true, s.serverFaults(), s.clusterFaults())
}

// member is a line of a node's view of the cluster.
type member struct {
	id, addr, flags, master string
	slots                   []string
}

func (m *member) is(flag string) bool { return slices.Contains(strings.Split(m.flags, ","), flag) }

// members is a node's view of the cluster.
func (n *node) members(ctx context.Context) (list []member, err error) {
	text, err := n.admin.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES: %q", line)
		}
		addr, _, _ := strings.Cut(words[1], "@")
		list = append(list, member{id: words[0], addr: addr, flags: words[2], master: words[3], slots: words[8:]})
	}
	return list, nil
}

// myself is what a node says of itself.
func (n *node) myself(ctx context.Context) (member, error) {
	all, err := n.members(ctx)
	if err != nil {
		return member{}, err
	}
	for _, m := range all {
		if m.is("myself") {
			return m, nil
		}
	}
	return member{}, errors.New("a node does not know itself")
}

// clusterMasters are the nodes that say that they are masters with slots.
func (s *servers) clusterMasters(ctx context.Context) ([]*node, error) {
	var list []*node
	for _, n := range s.nodes {
		if m, err := n.myself(ctx); err == nil && m.is("master") && len(m.slots) > 0 {
			list = append(list, n)
		}
	}
	if len(list) != clusterMasters {
		return nil, fmt.Errorf("%d masters of %d", len(list), clusterMasters)
	}
	return list, nil
}

// clusterWhole reports nil if all nodes have the same view of the cluster, in
// which nobody is missing, and each master has a replica in sync.
func (s *servers) clusterWhole(ctx context.Context) error {
	views := map[string]bool{}
	for _, n := range s.nodes {
		all, err := n.members(ctx)
		if err != nil {
			return err
		}
		var view []string
		for _, m := range all {
			for _, flag := range []string{"fail", "fail?", "handshake", "noaddr"} {
				if m.is(flag) {
					return fmt.Errorf("%s sees %s: %s", n.known, m.addr, flag)
				}
			}
			if m.is("myself") && m.is("slave") {
				is, err := n.replication(ctx)
				if err != nil || is["master_link_status"] != "up" {
					return fmt.Errorf("replica %s: link %s, %v", n.known, is["master_link_status"], err)
				}
			}
			view = append(view, strings.Join(append([]string{m.id, m.master}, m.slots...), " "))
		}
		slices.Sort(view)
		views[strings.Join(view, "\n")] = true
		info, err := n.admin.ClusterInfo(ctx).Result()
		if err != nil || !strings.Contains(info, "cluster_state:ok") {
			return fmt.Errorf("%s: the cluster is down, %v", n.known, err)
		}
	}
	if len(views) != 1 {
		return fmt.Errorf("%d views of the cluster", len(views))
	}
	masters, err := s.clusterMasters(ctx)
	for _, n := range masters {
		if err == nil {
			err = n.inSync(ctx, 1)
		}
	}
	return err
}
