package registers

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

var (
	seeds = flag.Uint64("seeds", 100, "how many worlds")
	first = flag.Uint64("seed", uint64(time.Now().Unix()/86_400)*1_000_000, "the first of them")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSeeds runs some worlds, others each day.
func TestSeeds(t *testing.T) {
	grants := 0
	for seed := *first; seed < *first+*seeds; seed++ {
		w := draw(seed)
		synctest.Test(t, w.run)
		if grants += w.grants; w.failed != nil {
			t.Fatalf("seed %d: %v\nreplay: go -C lab test -count=1 ./registers -run Seeds -seed %d -seeds 1", seed, w.failed, seed)
		}
	}
	t.Logf("%d seeds from %d on: %d grants", *seeds, *first, grants)
}
