//go:build unix

package httpengine_test

import (
	"testing"

	"sema"
	"sema/engines/httpengine"
	"sema/enginetest"
	"sema/internal/fixture/redistest"
)

func TestMain(m *testing.M) {
	enginetest.Main(redistest.Settled(m), func(url string) (sema.Engine, error) { return httpengine.New(url, nil) })
}

func TestPromisesOverMemory(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overMemory(inMemory, nil))
}

func TestPromisesWithoutUpgrades(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overMemory(inMemory, withoutUpgrades))
}

func TestPromisesOverRedis(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overRedis)
}

func TestPromisesThroughTwoServers(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overTwo)
}

func TestProcessesOverRedis(t *testing.T) {
	t.Parallel()
	enginetest.RunProcesses(t, overRedis(t), 4)
}

func BenchmarkOverMemory(b *testing.B) { enginetest.Benchmark(b, overMemory(nil, nil)) }

func BenchmarkWithoutUpgrades(b *testing.B) {
	enginetest.Benchmark(b, overMemory(nil, withoutUpgrades))
}

func BenchmarkOverRedis(b *testing.B) { enginetest.Benchmark(b, overRedis) }

// BenchmarkDirectRedis measures the server's engine without the server, for comparison.
func BenchmarkDirectRedis(b *testing.B) {
	enginetest.Benchmark(b, func(tb testing.TB) enginetest.Store {
		s := redistest.Start(tb)
		return enginetest.Store{Client: func(tb testing.TB) sema.Engine { return redisAt(tb, s) }}
	})
}
