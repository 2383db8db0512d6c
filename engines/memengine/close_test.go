package memengine_test

import (
	"context"
	"testing"

	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

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
