package redistest

import (
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"sema/lab/expect"
)

// over are tests that have ended.
type over struct{}

func (over) Run() int { return 7 }

func TestSettledWaitsForProbesOfAClosedClient(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.OK(t, err)
	away := l.Addr().String()
	expect.OK(t, l.Close())
	c := redis.NewClient(&redis.Options{Addr: away, PoolSize: 1, MaxRetries: -1})
	expect.Until(t, "the server is probed", func() bool {
		_ = c.Ping(t.Context()).Err()
		return probed()
	})
	if code := Settled(over{}).Run(); code != 7 || !probed() {
		t.Errorf("code %d, and the probes of a client that is open are gone", code)
	}
	expect.OK(t, c.Close())
	if code := Settled(over{}).Run(); code != 7 || probed() {
		t.Errorf("code %d, and a closed client's probes go on", code)
	}
}
