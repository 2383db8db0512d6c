package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sema/engine"
)

func TestPoolsInJSON(t *testing.T) {
	for text, want := range map[engine.Pools]string{"": `{}`, "gpu=1": `{"gpu":1}`, "A.b-c_9=2147483647,gpu=0": `{"A.b-c_9":2147483647,"gpu":0}`, "gpu=1,tpm=20000+200000/1m": `{"gpu":1,"tpm":"20000+200000/1m"}`} {
		got, err := json.Marshal(text)
		var again engine.Pools
		if err != nil || string(got) != want || json.Unmarshal(got, &again) != nil || again != text {
			t.Errorf("%q: %s, %v, and back %q; want %s", text, got, err, again, want)
		}
	}
	if text, err := json.Marshal(engine.Holder{}); err != nil || strings.Contains(string(text), "takes") {
		t.Errorf("%s, %v", text, err)
	}
	for _, text := range []string{`{"gpu":-1}`, `{"gpu":1.5}`, `{"":1}`, `{"a b":1}`, `{"gpu":2147483648}`, `{"rpm":"5"}`, `{"rpm":"5/0s"}`, `{"rpm":"5/1us"}`, `{"rpm":"0/1m"}`, `{"rpm":"5+0/1m"}`, `{"rpm":"5/25h"}`, `{"rpm":"/1m"}`, `{"rpm":"5+/1m"}`, `{"rpm":"5+1"}`, `"gpu=1"`, `["gpu"]`, `1`} {
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
	for text, want := range map[string]engine.Pools{"": "", "gpu=1": "gpu=1", "licence=2,gpu=1": "gpu=1,licence=2", "gpu=+1": "gpu=1", "gpu=01": "gpu=1", "licence=2, gpu=1": "gpu=1,licence=2",
		"tpm=20000+200000/60s, rpm=500/1m": "rpm=500/1m,tpm=20000+200000/1m", "rpm=5+5/90m": "rpm=5/90m", "a=1/1500ms,b=2/24h,c=3/0.5s": "a=1/1500ms,b=2/24h,c=3/500ms"} {
		if p, err := engine.ParsePools(text, 1); err != nil || p != want || engine.Pools(text).Validate(1) == nil != (text == string(want)) {
			t.Errorf("%q: %q, %v; want %q", text, p, err, want)
		}
	}
}

func TestPoolsWithOthers(t *testing.T) {
	p, err := engine.Pools("gpu=1,rpm=5/1m").With("gpu=0,tpm=7+9/1s")
	if err != nil || p != "rpm=5/1m,tpm=7+9/1s" || p.Of("tpm") != 7 || p.Amount("tpm") != (engine.Amount{N: 7, Back: 9, Per: time.Second}) || p.Names() != "rpm,tpm" {
		t.Errorf("%q, %v", p, err)
	}
}
