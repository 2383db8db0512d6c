package ground

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/history"
)

// serverFault happens to one master. begin and end reach it past all proxies.
type serverFault struct {
	name, note string
	lasts      [2]time.Duration
	excuses    history.Excuse
	failover   bool // another node is master then
	begin      func(ctx context.Context, n *node, r *rand.Rand) error
	end        func(ctx context.Context, n *node) error // nil: over by itself, and others may come meanwhile
}

// forgets is what a server excuses that forgets everything. Not tokens: they
// follow its clock, which goes on.
var forgets = history.Excuse{Limit: true, Order: true}

// each makes faults that each hit one of the masters. When one ends, the server takes
// writes again; after a failover, all nodes have their places again.
func (s *servers) each(list ...serverFault) (faults []Fault) {
	for _, f := range list {
		var hit *node
		made := Fault{
			Name: f.name, Note: f.note, Lasts: f.lasts, Excuses: f.excuses, Alone: f.end != nil,
			Begin: func(ctx context.Context, r *rand.Rand) (_ Extent, err error) {
				if hit, err = s.master(ctx, r); err != nil {
					return Extent{}, err
				}
				err = caught(func() error { return f.begin(ctx, hit, r) })
				if err != nil && f.end != nil && !f.failover {
					// What is half begun would spoil all that follows.
					_ = caught(func() error { return f.end(ctx, hit) })
				}
				return Extent{}, err
			},
		}
		if f.end != nil {
			made.End = func(ctx context.Context) error {
				if err := caught(func() error { return f.end(ctx, hit) }); err != nil {
					return err
				}
				if f.failover {
					return until(ctx, s.whole)
				}
				return hit.writable(ctx)
			}
		}
		faults = append(faults, made)
	}
	return faults
}

// The beginnings of several faults, and the end of one that is over by itself.
func kill(_ context.Context, n *node, _ *rand.Rand) error   { n.Kill(); return nil }
func freeze(_ context.Context, n *node, _ *rand.Rand) error { n.Stop(); return nil }
func over(context.Context, *node) error                     { return nil }

// do is a fault that is one command, and over at once.
func do(words ...any) func(context.Context, *node, *rand.Rand) error {
	return func(ctx context.Context, n *node, _ *rand.Rand) error { return n.admin.Do(ctx, words...).Err() }
}

// config is a setting of the server.
func config(name, value string) func(context.Context, *node) error {
	return func(ctx context.Context, n *node) error { return n.admin.ConfigSet(ctx, name, value).Err() }
}

// serverFaults are those that fit any ground. They lose data at once, or make the server
// answer with errors, or late.
func (s *servers) serverFaults() []Fault {
	faults := s.each(
		serverFault{name: "server: CLIENT KILL TYPE normal", note: "all connections but those that subscribe", begin: do("CLIENT", "KILL", "TYPE", "normal")},
		serverFault{name: "server: CLIENT KILL TYPE pubsub", note: "all connections that subscribe", begin: do("CLIENT", "KILL", "TYPE", "pubsub")},
		serverFault{name: "server: SCRIPT FLUSH", begin: do("SCRIPT", "FLUSH")},
		serverFault{name: "server: FLUSHALL", note: "all data is gone, the connections stay", excuses: forgets, begin: do("FLUSHALL")},
		serverFault{name: "server: DEL of a semaphore", note: "all keys of one semaphore, in one step", excuses: forgets, begin: deleteOne},
		serverFault{
			name: pauseWrite, note: "writes wait", begin: do("CLIENT", "PAUSE", "60000", "WRITE"),
			end: func(ctx context.Context, n *node) error { return n.admin.Do(ctx, "CLIENT", "UNPAUSE").Err() },
		},
		serverFault{
			name: "server: memory full", note: "maxmemory reached, noeviction",
			begin: do("CONFIG", "SET", "maxmemory", "1mb"), end: config("maxmemory", "0"),
		},
		serverFault{
			name: "server: NOREPLICAS", note: "min-replicas-to-write above those there are",
			begin: do("CONFIG", "SET", "min-replicas-to-write", "9"), end: config("min-replicas-to-write", "0"),
		})
	if s.nodes[0].clock != nil {
		faults = append(faults, s.clockFaults()...)
	}
	return faults
}

const pauseWrite = "server: CLIENT PAUSE WRITE"

// deleteOne deletes all keys of one semaphore, if there is one.
func deleteOne(ctx context.Context, n *node, r *rand.Rand) error {
	states, err := scan(ctx, n.admin, "sema:{*}:state")
	if err != nil || len(states) == 0 {
		return err
	}
	prefix := strings.TrimSuffix(states[r.IntN(len(states))], "state")
	// One step: a client's key that comes between the scan and the deletion would
	// stay behind.
	return n.admin.Eval(ctx, `
		local cursor = '0'
		repeat
			local page = redis.call('SCAN', cursor, 'COUNT', 1000)
			cursor = page[1]
			for _, key in ipairs(page[2]) do
				if key:sub(1, #KEYS[1]) == KEYS[1] then redis.call('DEL', key) end
			end
		until cursor == '0'
		return 1`, []string{prefix}).Err()
}

func scan(ctx context.Context, c *redis.Client, pattern string) (keys []string, err error) {
	it := c.Scan(ctx, 0, pattern, 1000).Iterator()
	for it.Next(ctx) {
		keys = append(keys, it.Val())
	}
	return keys, it.Err()
}

// answers waits until a write is answered as told.
func (n *node) answers(ctx context.Context, prefix string) error {
	return until(ctx, func(ctx context.Context) error { return n.answersOnce(ctx, prefix) })
}

func (n *node) answersOnce(ctx context.Context, prefix string) error {
	err := write(ctx, n.admin)
	if err == nil || !strings.HasPrefix(err.Error(), prefix) {
		return fmt.Errorf("no answer %s: %v", prefix, err)
	}
	return nil
}
