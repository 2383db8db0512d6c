// Package registers runs many processes' engines of package register on one store, in
// virtual time, from one seed: the whole way from Acquire to the row, with real goroutines. Messages to the store are
// slow, late and lost, and so are its answers; it crashes and forgets what it may, its clock is
// fast or slow and is set, and processes are cut off. The promises are checked whenever somebody gets a permit.
//
// It has tests only. A seed without faults does the same each time.
package registers

import (
	"flag"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"sema/lab/plant"
)

var (
	seeds = flag.Uint64("seeds", 100, "how many worlds")
	first = flag.Uint64("seed", uint64(time.Now().Unix()/86_400)*1_000_000, "the first of them")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play runs the world of a seed.
func play(t *testing.T, seed uint64) *world {
	w := draw(seed)
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, w.run)
	return w
}

// A seed without faults plays the same each time: the order is judged by it. With faults time limits of
// the engine and its caller can end at one instant, and then the runtime draws which is first.
func TestASeedWithoutFaultsIsPlayedAgain(t *testing.T) {
	played, steps := 0, 0
	for seed := *first; played < int(min(*seeds, 50)); seed++ {
		if !draw(seed).calm() {
			continue
		}
		trace, again := play(t, seed).trace, play(t, seed).trace
		if !slices.Equal(trace, again) {
			t.Fatalf("seed %d: another run:\n%s\n\n%s", seed, strings.Join(trace, "\n"), strings.Join(again, "\n"))
		}
		played, steps = played+1, steps+len(trace)
	}
	if steps < 10*played {
		t.Errorf("%d seeds have %d steps", played, steps)
	}
}

// TestSeeds runs some worlds, others each day.
func TestSeeds(t *testing.T) {
	grants := 0
	for seed := *first; seed < *first+*seeds; seed++ {
		grants += judged(t, seed)
	}
	t.Logf("%d seeds from %d on: %d grants", *seeds, *first, grants)
}

// judged runs the world of a seed, which must not fail. It returns how many permits were granted.
func judged(t *testing.T, seed uint64) int {
	t.Helper()
	w := play(t, seed)
	if w.failed != nil {
		t.Fatalf("seed %d: %v\nreplay: go -C lab test -count=1 ./registers -run Seeds -seed %d -seeds 1", seed, w.failed, seed)
	}
	return w.grants
}

// Worlds that failed once.
func TestKnownWorlds(t *testing.T) {
	for _, seed := range []uint64{
		555,  // a process that was always cut off waited in vain
		2877, // a process lost each swap for longer than its tickets live, and so its places
		4528, // a clock was set forward by less than a swap's answer took
	} {
		judged(t, seed)
	}
}

const (
	semaphoreFile = "engines/register/semaphore.go"
	outcomeFile   = "engines/register/outcome.go"
	pollFile      = "engines/register/poll.go"
)

// planted are bugs that TestSeeds has to find.
var planted = map[string]plant.Bug{
	"the time is taken high, and nothing bounds it": {File: semaphoreFile, Old: "m.Now = now\n\to, err := s.carryOut(m, calls, doubt)",
		New: "m.Now = now + 100_000\n\to, err := s.carryOut(m, calls, doubt)\n\tm.Now = 0"},
	"the doubt is not taken off a lease":             {File: outcomeFile, Old: "o.shorten(doubt)", New: "o.shorten(0)"},
	"time falls back":                                {File: outcomeFile, Old: "return max(r.At, r.Now)", New: "return r.Now"},
	"a crash may forget a grant":                     {File: outcomeFile, Old: "if a.Status == protocol.Granted || a.Status", New: "if a.Status"},
	"a crash may forget what was handed over":        {File: outcomeFile, Old: "if len(n.Grants) > 0 {", New: "if len(n.Grants) > 99 {"},
	"what was only seen counts before it is durable": {File: pollFile, Old: "g.Ticket, g.Unsure = f.ticket, true", New: "g.Ticket = f.ticket"},
}

// seldom are bugs that take hundreds of seeds: make planted looks for them as well.
var seldom = map[string]plant.Bug{
	"a swap is not bounded from below": {File: semaphoreFile, Old: "m.Version, o.next, m.Now, upTo", New: "m.Version, o.next, 0, upTo"},
	"a swap is not bounded from above": {File: semaphoreFile, Old: "m.Now, upTo+clockStep.Microseconds())", New: "m.Now, 1<<62)"},
	"versions are counted":             {File: outcomeFile, Old: "return version + 1 + randomBelow(1<<20)", New: "return version + 1"},
}

var failing = regexp.MustCompile(`seed ([0-9]+): ([a-z]+): `)

// TestPlantedBugsAreFound builds TestSeeds once, with all bugs, and runs it with one at a time.
func TestPlantedBugsAreFound(t *testing.T) {
	bugs, most := planted, 300
	if *all {
		bugs, most = maps.Clone(planted), 20_000
		maps.Copy(bugs, seldom)
	}
	build := func(root, dir string, bugs []plant.Bug) (string, error) {
		return plant.BuildTests(root, "./registers", dir, bugs)
	}
	args := []string{"-test.run", "TestSeeds", "-seed", strconv.Itoa(first0), "-seeds", strconv.Itoa(most)}
	plant.Each(t, bugs, build, args, func(t *testing.T, out []byte, err error) {
		found := failing.FindSubmatch(out)
		if err == nil || found == nil {
			t.Fatalf("not found: %v\n%s", err, out)
		}
		seed, _ := strconv.Atoi(string(found[1]))
		t.Logf("%d seeds: %s", seed-first0+1, found[2])
	})
}

const first0 = 1 // seed

var all = flag.Bool("seldom", false, "plant the bugs that take many seeds as well")
