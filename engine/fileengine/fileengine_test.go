package fileengine_test

import (
	"net/url"
	"testing"

	"sema"
	"sema/engine/enginetest"
	"sema/engine/fileengine"
)

func TestMain(m *testing.M) {
	enginetest.Main(m, func(u string) (sema.Engine, error) {
		parsed, err := url.Parse(u)
		if err != nil {
			return nil, err
		}
		return fileengine.New(parsed.Path)
	})
}

func open(tb testing.TB) enginetest.Store {
	dir := tb.TempDir()
	return enginetest.Store{
		URL: "file://" + dir,
		Client: func(tb testing.TB) sema.Engine {
			e, err := fileengine.New(dir)
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { _ = e.Close() })
			return e
		},
	}
}

func TestPromises(t *testing.T) { enginetest.Run(t, open) }

func TestProcesses(t *testing.T) { enginetest.RunProcesses(t, open(t), 4) }

func BenchmarkEngine(b *testing.B) { enginetest.Benchmark(b, open) }
