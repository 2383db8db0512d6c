package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sema/engine"
)

func TestPoolsInJSON(t *testing.T) {
	for text, want := range map[engine.Pools]string{"": `{}`, "gpu=1": `{"gpu":1}`, "A.b-c_9=2147483647,gpu=0": `{"A.b-c_9":2147483647,"gpu":0}`} {
		got, err := json.Marshal(text)
		var again engine.Pools
		if err != nil || string(got) != want || json.Unmarshal(got, &again) != nil || again != text {
			t.Errorf("%q: %s, %v, and back %q; want %s", text, got, err, again, want)
		}
	}
	if text, err := json.Marshal(engine.Holder{}); err != nil || strings.Contains(string(text), "takes") {
		t.Errorf("%s, %v", text, err)
	}
	for _, text := range []string{`{"gpu":-1}`, `{"gpu":1.5}`, `{"":1}`, `{"a b":1}`, `{"gpu":2147483648}`, `"gpu=1"`, `["gpu"]`, `1`} {
		var p engine.Pools
		if err := json.Unmarshal([]byte(text), &p); err == nil || p != "" {
			t.Errorf("%s: %q, %v", text, p, err)
		}
	}
}

func TestParsePools(t *testing.T) {
	many := map[string]int{}
	for i := range engine.MaxPools {
		many[fmt.Sprint("p", i)] = 1
	}
	if p, err := engine.NewPools(many, 1); err != nil || p.Validate(1) != nil || len(p.Map()) != engine.MaxPools {
		t.Errorf("%q, %v", p, err)
	}
	many["more"] = 1
	var bad *engine.ArgumentError
	if p, err := engine.NewPools(many, 1); !errors.As(err, &bad) || p != "" {
		t.Errorf("%q, %v", p, err)
	}
	for text, want := range map[string]engine.Pools{"": "", "gpu=1": "gpu=1", "licence=2,gpu=1": "gpu=1,licence=2", "gpu=+1": "gpu=1", "gpu=01": "gpu=1", "licence=2, gpu=1": "gpu=1,licence=2"} {
		if p, err := engine.ParsePools(text, 1); err != nil || p != want || engine.Pools(text).Validate(1) == nil != (text == string(want)) {
			t.Errorf("%q: %q, %v; want %q", text, p, err, want)
		}
	}
}
