package simulate

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestSeeds runs a few hundred seeds, from one that differs each day.
func TestSeeds(t *testing.T) {
	first := uint64(time.Now().Unix()/86_400) * 1_000_000
	if n, err := strconv.ParseUint(os.Getenv("SEMA_SEED"), 10, 64); err == nil {
		first = n
	}
	seeds, events, grants := uint64(0), 0, 0
	for ; seeds < 400; seeds++ {
		r := Run(first+seeds, false)
		if r.Err != nil {
			t.Fatalf("%v\n%s", r.Err, Replay(first+seeds))
		}
		events, grants = events+r.Events, grants+r.Grants
	}
	t.Logf("seeds %d … %d: %d events, %d grants", first, first+seeds-1, events, grants)
}

// The same seed does the same, traced or not.
func TestASeedRepeatsItself(t *testing.T) {
	for seed := range uint64(20) {
		a, b := Run(seed, false), Run(seed, true)
		if b.Trace = ""; fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("seed %d: %v, and then %v", seed, a, b)
		}
	}
}

// TestTwoProcessesThatAlternate is ten minutes of virtual time, or
// SEMA_ALTERNATE=24h of it.
func TestTwoProcessesThatAlternate(t *testing.T) {
	long := 10 * time.Minute
	if d, err := time.ParseDuration(os.Getenv("SEMA_ALTERNATE")); err == nil {
		long = d
	}
	r := Alternate(1, long)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	t.Logf("%v of virtual time, %d grants, the longest wait %v", r.Virtual, r.Grants, r.Longest)
}
