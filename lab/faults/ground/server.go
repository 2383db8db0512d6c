package ground

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// serverFault happens to one master. begin and end reach it past all proxies.
type serverFault struct {
	name, note string
	lasts      time.Duration
	excuses    Excuse
	begin      func(ctx context.Context, n *node, r *rand.Rand) error
	end        func(ctx context.Context, n *node) error // nil: over by itself
}

// forgets is what a server excuses that forgets everything. Not tokens: they
// follow its clock, which goes on.
var forgets = Excuse{Limit: true, Order: true}

// fault makes a Fault that hits one of the masters. When it ends, the server
// takes writes again.
func (s *servers) fault(f serverFault) Fault {
	var hit *node
	made := Fault{
		Name: f.name, Note: f.note, For: f.lasts, Excuses: f.excuses, Alone: true,
		Begin: func(ctx context.Context, r *rand.Rand) (Extent, error) {
			var err error
			if hit, err = s.master(ctx, r); err != nil {
				return Extent{}, err
			}
			err = caught(func() error { return f.begin(ctx, hit, r) })
			if err != nil && f.end != nil {
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
			return hit.writable(ctx)
		}
	}
	return made
}

// do is a fault that is one command, and over at once.
func do(words ...any) func(context.Context, *node, *rand.Rand) error {
	return func(ctx context.Context, n *node, _ *rand.Rand) error { return n.admin.Do(ctx, words...).Err() }
}

// config is a setting of the server.
func config(name, value string) func(context.Context, *node) error {
	return func(ctx context.Context, n *node) error { return n.admin.ConfigSet(ctx, name, value).Err() }
}

// briefFaults are over at once, and can happen to any master without a failover.
func (s *servers) briefFaults() (faults []Fault) {
	for _, f := range []serverFault{
		{name: "server: CLIENT KILL TYPE normal", note: "all connections but those that subscribe", begin: do("CLIENT", "KILL", "TYPE", "normal")},
		{name: "server: CLIENT KILL TYPE pubsub", note: "all connections that subscribe", begin: do("CLIENT", "KILL", "TYPE", "pubsub")},
		{name: "server: SCRIPT FLUSH", begin: do("SCRIPT", "FLUSH")},
		{name: "server: FLUSHALL", note: "all data is gone, the connections stay", excuses: forgets, begin: do("FLUSHALL")},
		{name: "server: DEL of a semaphore", note: "all keys of one semaphore, in one step", excuses: forgets, begin: deleteOne},
	} {
		made := s.fault(f)
		made.Alone = false
		faults = append(faults, made)
	}
	return faults
}

// refusalFaults make the server answer with errors, or late. It loses no data.
func (s *servers) refusalFaults() (faults []Fault) {
	for _, f := range []serverFault{
		{
			name: "server: CLIENT PAUSE WRITE", note: "writes wait", lasts: time.Second,
			begin: do("CLIENT", "PAUSE", "60000", "WRITE"),
			end:   func(ctx context.Context, n *node) error { return n.admin.Do(ctx, "CLIENT", "UNPAUSE").Err() },
		},
		{
			name: "server: memory full", note: "maxmemory reached, noeviction", lasts: time.Second,
			begin: do("CONFIG", "SET", "maxmemory", "1mb"), end: config("maxmemory", "0"),
		},
		{
			name: "server: NOREPLICAS", note: "min-replicas-to-write above those there are", lasts: time.Second,
			begin: do("CONFIG", "SET", "min-replicas-to-write", "9"), end: config("min-replicas-to-write", "0"),
		},
	} {
		faults = append(faults, s.fault(f))
	}
	return faults
}

// serverFaults are those that fit any ground.
func (s *servers) serverFaults() []Fault {
	faults := append(s.briefFaults(), s.refusalFaults()...)
	if s.nodes[0].clock != nil {
		faults = append(faults, s.clockFaults()...)
	}
	return faults
}

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
