package ground

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sema/internal/fixture/local"
	"sema/internal/fixture/redistest"
)

// rights are those that docs/redis.md gives the user of a single server.
const rights = `on >secret ~sema:* &sema:*
	+evalsha +eval +time +type +exists +del +get +set +scan +ping
	+hget +hmget +hset +hdel +hgetall +hkeys +hlen +hrandfield +hscan
	+zadd +zrem +zcard +zcount +zrange +zrangebyscore +zrank +zscore +zmscore +zrangebylex +zrevrangebylex +zlexcount +zrevrange
	+pexpire +persist +pttl
	+publish +subscribe +unsubscribe +pubsub|numsub`

// safety is TLS and a user of few rights.
type safety struct {
	ca   string
	port int
	args []string // of the server
}

func newSafety(h *host) (*safety, error) {
	dir := h.TempDir()
	cert, key, err := local.Certificate(dir)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	s := &safety{ca: cert, port: redistest.FreePort(h)}
	// The user is in a file, so that a server that is restarted knows him again.
	users := filepath.Join(dir, "users.acl")
	if err := os.WriteFile(users, nil, 0o600); err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	s.args = []string{
		"--tls-port", strconv.Itoa(s.port), "--tls-cert-file", s.ca, "--tls-key-file", key,
		"--tls-ca-cert-file", s.ca, "--tls-auth-clients", "no", "--aclfile", users,
	}
	return s, nil
}

// admit makes the user.
func (s *safety) admit(ctx context.Context, n *node) error {
	words := []any{"ACL", "SETUSER", "sema"}
	for _, w := range strings.Fields(rights) {
		words = append(words, w)
	}
	if err := n.admin.Do(ctx, words...).Err(); err != nil {
		return fmt.Errorf("user: %w", err)
	}
	// Servers from 7.2 on are told the client's name. Older ones do not know the
	// command, and refuse the right to it.
	if err := n.admin.Do(ctx, "ACL", "SETUSER", "sema", "+client|setinfo").Err(); err != nil && !strings.Contains(err.Error(), "Unknown command") {
		return fmt.Errorf("user: %w", err)
	}
	if err := n.admin.Do(ctx, "ACL", "SAVE").Err(); err != nil {
		return fmt.Errorf("user: %w", err)
	}
	return nil
}

// link adds what a worker needs.
func (s *safety) link(l *Link) {
	u, err := url.Parse(l.URL)
	if err != nil {
		return // it was made here
	}
	u.User = url.UserPassword("sema", "secret")
	l.URL, l.CA = u.String(), s.ca
}
