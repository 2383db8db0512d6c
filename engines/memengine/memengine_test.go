package memengine_test

import (
	"testing"

	"go.uber.org/goleak"

	"sema"
	"sema/engines/memengine"
	"sema/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(tb testing.TB) enginetest.Store {
	engine := memengine.New()
	tb.Cleanup(func() { _ = engine.Close() })
	return enginetest.Store{Client: func(testing.TB) sema.Engine { return engine }, Virtual: true}
}

func TestPromises(t *testing.T) { enginetest.Run(t, open) }

func TestPromisesOfThoseWhoKeep(t *testing.T) {
	enginetest.Run(t, func(tb testing.TB) enginetest.Store {
		store := open(tb)
		store.Keep = true
		return store
	})
}

func BenchmarkEngine(b *testing.B) { enginetest.Benchmark(b, open) }
