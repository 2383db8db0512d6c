package memengine_test

import (
	"testing"

	"go.uber.org/goleak"

	"sema"
	"sema/engine/enginetest"
	"sema/engine/memengine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(tb testing.TB) enginetest.Store {
	engine := memengine.New()
	tb.Cleanup(func() { _ = engine.Close() })
	return enginetest.Store{Client: func(testing.TB) sema.Engine { return engine }}
}

func TestPromises(t *testing.T) { enginetest.Run(t, open) }

func BenchmarkEngine(b *testing.B) { enginetest.Benchmark(b, open) }
