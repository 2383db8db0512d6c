//go:build unix

package redisengine_test

import (
	"flag"
	"runtime/debug"
	"testing"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/redisengine"
	"sema/enginetest"
	"sema/internal/fixture/redistest"
)

func TestMain(m *testing.M) {
	debug.SetMemoryLimit(48 << 20)      // of the heap: the race detector takes several times as much
	_ = flag.Set("test.parallel", "16") // no pool of connections bounds them, and with eight a third of the time is idle
	enginetest.Main(redistest.Settled(m), func(url string) (sema.Engine, error) {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return redisengine.New(redis.NewClient(o), nil)
	})
}

func standalone(tb testing.TB) enginetest.Store {
	s := redistest.Start(tb)
	return enginetest.Store{
		URL:    s.URL(),
		Freeze: s.Stop,
		Thaw:   s.Continue,
		Forget: func(testing.TB) { s.Restart() },
		Client: func(tb testing.TB) sema.Engine {
			return engineAt(tb, s.Addr())
		},
	}
}

func TestPromises(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, standalone)
}

func TestPromisesOfThoseWhoKeep(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(tb testing.TB) enginetest.Store {
		store := standalone(tb)
		store.Keep = true
		return store
	})
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	enginetest.RunProcesses(t, standalone(t), 4)
}

func TestKeepers(t *testing.T) {
	t.Parallel()
	enginetest.RunKeepers(t, standalone(t))
}
