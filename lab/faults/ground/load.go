package ground

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// loading has the server load its data as after a restart, slowly, and answer
// LOADING meanwhile. It forgets nothing: it saves first.
func loading() serverFault {
	return serverFault{
		name: "server: LOADING", note: "DEBUG RELOAD with 10 ms for each of 300 more keys",
		begin: func(ctx context.Context, n *node, _ *rand.Rand) error {
			for _, c := range [][]any{
				{"DEBUG", "POPULATE", "300", "ground:fill", "100"},
				{"CONFIG", "SET", "key-load-delay", "10000"},
				{"CONFIG", "SET", "loading-process-events-interval-bytes", "1024"},
			} {
				if err := n.admin.Do(ctx, c...).Err(); err != nil {
					return err
				}
			}
			err := unanswered(ctx, func(ctx context.Context) error {
				return n.admin.Do(ctx, "DEBUG", "RELOAD").Err()
			})
			if err != nil {
				return err
			}
			return n.answers(ctx, "LOADING")
		},
		end: func(ctx context.Context, n *node) error {
			if err := config("key-load-delay", "0")(ctx, n); err != nil {
				return err
			}
			if err := n.writable(ctx); err != nil {
				return err
			}
			fill, err := scan(ctx, n.admin, "ground:fill*")
			if err == nil && len(fill) > 0 {
				err = n.admin.Del(ctx, fill...).Err()
			}
			if err != nil {
				return err
			}
			// A server without persistence would load it when it is restarted.
			return os.RemoveAll(filepath.Join(n.Dir(), "dump.rdb"))
		},
	}
}

// tooMany makes the server refuse new connections, and closes all connections
// except the one that can end the fault.
func tooMany() serverFault {
	var kept *redis.Conn
	return serverFault{
		name: "server: maxclients reached", note: "all connections are closed, and new ones refused",
		begin: func(ctx context.Context, n *node, _ *rand.Rand) error {
			kept = n.admin.Conn()
			if err := kept.ConfigSet(ctx, "maxclients", "1").Err(); err != nil {
				return err
			}
			for _, of := range []string{"pubsub", "normal"} { // all connections but this one
				if err := kept.Do(ctx, "CLIENT", "KILL", "TYPE", of).Err(); err != nil {
					return err
				}
			}
			return until(ctx, func(context.Context) error { return n.refused() })
		},
		end: func(ctx context.Context, _ *node) error {
			err := kept.ConfigSet(ctx, "maxclients", "10000").Err()
			_ = kept.Close()
			return err
		},
	}
}

// refused reports nil if the server turns a new connection away. Nothing is sent
// to it: that would have the reason lost.
func (n *node) refused() error {
	c, err := net.DialTimeout("tcp", n.Addr(), patience)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	said := make([]byte, 64)
	k, err := c.Read(said)
	if !strings.Contains(string(said[:k]), "max number of clients") {
		return fmt.Errorf("a new connection hears %q, %v", said[:k], err)
	}
	return nil
}
