package ground

import (
	"context"
	"strconv"

	"sema/internal/fixture/redistest"
)

// newStandalone starts one server: with nothing on disk, with an append-only
// file, or with TLS and a user of few rights.
func newStandalone(ctx context.Context, kind string, h *host) (Ground, error) {
	s := &servers{base: base{host: h, kind: kind}}
	c := newClocks(ctx, h)
	own, env := c.next()
	scheme, args := "redis", []string{"--lua-time-limit", "200"}
	var secure *safety
	switch kind {
	case "standalone-aof":
		args = append(args, "--appendonly", "yes", "--appendfsync", "everysec")
	case "standalone-tls":
		var err error
		if secure, err = newSafety(h); err != nil {
			return nil, err
		}
		scheme, args = "rediss", append(args, secure.args...)
	}
	srv := redistest.StartEnv(h, env, args...)
	addr := srv.Addr()
	if secure != nil {
		addr = "127.0.0.1:" + strconv.Itoa(secure.port)
	}
	n := s.add(srv, addr, nil, own)
	s.nodes = []*node{n}
	s.connect(scheme, "", s.nodes)
	if secure != nil {
		if err := secure.admit(ctx, n); err != nil {
			return nil, err
		}
		for i := range s.links {
			secure.link(&s.links[i])
		}
	}
	s.masters = func(context.Context) ([]*node, error) { return s.nodes, nil }
	s.whole = n.writable
	return s.ready(ctx, secure == nil, s.serverFaults(), s.standaloneFaults())
}
