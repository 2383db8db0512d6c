package redisengine_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/redisengine"
	"sema/enginetest"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

func cluster(tb testing.TB) enginetest.Store {
	c := redistest.StartCluster(tb, 3)
	return enginetest.Store{
		Client: func(tb testing.TB) sema.Engine {
			return closing(tb, redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: c.Addrs(), ContextTimeoutEnabled: true, ReadBufferSize: buffer, WriteBufferSize: buffer,
				MaintNotificationsConfig: noNews(), DisableRoutingPolicies: true, // otherwise each client asks for the list of all commands
			}))
		},
	}
}

func closing(tb testing.TB, rdb redis.UniversalClient) sema.Engine {
	e, err := redisengine.New(rdb, nil)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		_ = e.Close()
		_ = rdb.Close()
		e, rdb = nil, nil // package testing keeps this function until all tests have ended, and with it e and rdb
	})
	return e
}

func TestPromisesOnCluster(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, cluster)
}
