//go:build unix

package semarueidis_test

import (
	"runtime/debug"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"sema"
	"sema/contrib/rueidis"
	"sema/engines/redisengine"
	"sema/enginetest"
	"sema/internal/fixture/redistest"
)

func TestMain(m *testing.M) {
	debug.SetMemoryLimit(48 << 20) // of the heap: the race detector takes several times as much
	enginetest.Main(m, func(url string) (sema.Engine, error) {
		option, err := rueidis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		client, err := rueidis.NewClient(option)
		if err != nil {
			return nil, err
		}
		rdb, err := semarueidis.New(client, option)
		if err != nil {
			return nil, err
		}
		return redisengine.New(rdb, nil)
	}, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"), // sleeps 5 s before it closes what it left
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1")) // sleeps before it looks at the cluster again
}

func standalone(tb testing.TB) enginetest.Store {
	s := redistest.Start(tb)
	return enginetest.Store{
		URL:    s.URL(),
		Freeze: s.Stop,
		Thaw:   s.Continue,
		Forget: func(testing.TB) { s.Restart() },
		Client: func(tb testing.TB) sema.Engine { return engineAt(tb, s.Addr()) },
	}
}

func TestPromises(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, standalone)
}

// It runs alone: rueidis has goroutines for each connection, and the race detector memory
// for each of them.
func TestPromisesOnCluster(t *testing.T) {
	enginetest.Run(t, func(tb testing.TB) enginetest.Store {
		c := redistest.StartCluster(tb, 3)
		return enginetest.Store{Client: func(tb testing.TB) sema.Engine { return engineAt(tb, c.Addrs()...) }}
	})
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	enginetest.RunProcesses(t, standalone(t), 4)
}
