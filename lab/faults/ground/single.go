package ground

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sema/internal/fixture/redistest"
)

// cut is how much the end of an append-only file loses at most.
const cut = 4 << 10

// standaloneFaults are those of one server. Others would have a failover, which is
// another fault.
func (s *servers) standaloneFaults() []Fault {
	restart := func(_ context.Context, n *node) error { n.Restart(); return nil }
	list := []serverFault{
		{
			name: "server: SIGSTOP, SIGCONT", note: "connections stay open, nothing is answered, then everything at once",
			begin: freeze, end: func(_ context.Context, n *node) error { n.Continue(); return nil },
		},
		{
			name: "server: CLIENT PAUSE ALL", note: "everything waits, 1.5 s",
			begin: do("CLIENT", "PAUSE", "1500", "ALL"), end: over, // when a write is answered
		},
		{
			name: "server: DEBUG SLEEP", note: "the server does nothing for 1.5 s",
			begin: func(ctx context.Context, n *node, _ *rand.Rand) error {
				return unanswered(ctx, func(ctx context.Context) error {
					return n.admin.Do(ctx, "DEBUG", "SLEEP", "1.5").Err()
				})
			},
			end: over,
		},
		{
			name: "server: BUSY", note: "a script that does not end, killed by SCRIPT KILL",
			begin: func(ctx context.Context, n *node, _ *rand.Rand) error {
				err := unanswered(ctx, func(ctx context.Context) error {
					return n.admin.Eval(ctx, "while true do end", nil).Err()
				})
				if err != nil {
					return err
				}
				return n.answers(ctx, "BUSY")
			},
			end: func(ctx context.Context, n *node) error {
				err := n.admin.ScriptKill(ctx).Err()
				if err != nil && strings.HasPrefix(err.Error(), "NOTBUSY") {
					return nil
				}
				return err
			},
		},
		{
			name: "server: READONLY", note: "it is made a replica of a server that is not there, and a master again",
			begin: do("REPLICAOF", "127.0.0.1", "1"),
			end:   func(ctx context.Context, n *node) error { return n.admin.Do(ctx, "REPLICAOF", "NO", "ONE").Err() },
		},
		{
			name: "server: MASTERDOWN", note: "the same, and replica-serve-stale-data no: reads are refused as well",
			begin: func(ctx context.Context, n *node, r *rand.Rand) error {
				if err := config("replica-serve-stale-data", "no")(ctx, n); err != nil {
					return err
				}
				return do("REPLICAOF", "127.0.0.1", "1")(ctx, n, r)
			},
			end: func(ctx context.Context, n *node) error {
				if err := n.admin.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
					return err
				}
				return config("replica-serve-stale-data", "yes")(ctx, n)
			},
		},
		{
			name: "server: MISCONF", note: "it cannot save to disk, and refuses writes",
			begin: misconfigure, end: reconfigure,
		},
		loading(), tooMany(),
	}
	if s.kind == "standalone-aof" {
		list = append(list,
			serverFault{
				name: "server: kill -9, append-only file", note: "appendfsync everysec; the machine lives, so the file has everything", begin: kill, end: restart,
			},
			serverFault{
				name: "server: kill -9, append-only file cut", note: "it loses its last 4 kB, half of it at most, as when the machine crashes",
				excuses: forgets, begin: kill,
				end: func(ctx context.Context, n *node) error {
					if err := cutTail(n.Dir()); err != nil {
						return err
					}
					return restart(ctx, n)
				},
			})
	} else {
		list = append(list, serverFault{
			name: "server: kill -9, nothing on disk", note: "a restart forgets everything", excuses: forgets, begin: kill, end: restart,
		})
	}
	return s.each(list...)
}

// unanswered sends a command whose answer is long in coming, and does not wait for it.
func unanswered(ctx context.Context, send func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	err := send(short)
	if isTimeout(err) && ctx.Err() == nil {
		return nil
	}
	return err
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// cutTail cuts the newest append-only file in dir.
func cutTail(dir string) error {
	files, _ := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	if len(files) == 0 {
		files, _ = filepath.Glob(filepath.Join(dir, "appendonly.aof"))
	}
	if len(files) == 0 {
		return errors.New("no append-only file")
	}
	path := files[len(files)-1]
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()-min(cut, info.Size()/2))
}

// misconfigure has saving fail: a directory lies where the file would come.
func misconfigure(ctx context.Context, n *node, _ *rand.Rand) error {
	if err := os.MkdirAll(filepath.Join(n.Dir(), "dump.rdb", "x"), 0o700); err != nil {
		return err
	}
	if err := config("save", "3600 1000000")(ctx, n); err != nil {
		return err
	}
	if err := n.admin.BgSave(ctx).Err(); err != nil {
		return err
	}
	return n.answers(ctx, "MISCONF")
}

func reconfigure(ctx context.Context, n *node) error {
	if err := config("save", "")(ctx, n); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(n.Dir(), "dump.rdb"))
}

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
