package memengine_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	"sema/enginetest"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
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

// A session that is told of the engine's end may call the engine.
func TestCloseNotifiesWithoutItsLock(t *testing.T) {
	e := memengine.New()
	told := 0
	_, err := e.Open("x", engine.Client{}, func(protocol.Notification) {
		told++
		if _, err := e.List(context.Background()); err == nil {
			t.Error("a closed engine lists")
		}
		_ = e.Close()
	})
	expect.OK(t, err)
	if err := e.Close(); err != nil || told != 1 {
		t.Errorf("%v; told %d times", err, told)
	}
}
