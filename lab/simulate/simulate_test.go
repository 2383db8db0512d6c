package simulate

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// today is a seed that differs each day, or SEMA_SEED.
func today() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("SEMA_SEED"), 10, 64); err == nil {
		return n
	}
	return uint64(time.Now().Unix()/86_400) * 1_000_000
}

// TestSeeds runs a few seeds here, beside the race detector. TestPlantedBugsAreFound runs
// hundreds more, without it and without a bug.
func TestSeeds(t *testing.T) {
	const seeds = 50
	first, events, grants := today(), 0, 0
	for seed := first; seed < first+seeds; seed++ {
		r := Run(seed, false)
		if r.Err != nil {
			t.Fatalf("%v\n%s", r.Err, Replay(seed))
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
