package fileengine_test

import (
	"testing"

	"sema"
	"sema/engines/fileengine"
	"sema/enginetest"
	"sema/internal/fixture/expect"
)

func open(tb testing.TB) enginetest.Store {
	dir := tb.TempDir()
	return enginetest.Store{
		URL: "file://" + dir,
		Client: func(tb testing.TB) sema.Engine {
			e, err := fileengine.New(dir, nil)
			expect.OK(tb, err)
			tb.Cleanup(func() { _ = e.Close() })
			return e
		},
	}
}

func TestPromises(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, open)
}

func BenchmarkEngine(b *testing.B) { enginetest.Benchmark(b, open) }
