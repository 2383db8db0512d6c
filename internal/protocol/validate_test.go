package protocol

import (
	"errors"
	"testing"

	"sema/engine"
)

func TestANilEngineIsRefused(t *testing.T) {
	for pkg, want := range map[string]string{
		"":      "sema: engine nil: want an engine, such as redisengine.New or memengine.New make",
		"watch": "watch: engine nil: want an engine, such as redisengine.New or memengine.New make",
	} {
		err := Validate(pkg, nil)
		if _, refused := errors.AsType[*engine.ArgumentError](err); !refused || err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
