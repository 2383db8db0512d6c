package ground

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "13"); err != nil { // they mostly wait
		panic(err)
	}
	goleak.VerifyTestMain(redistest.Settled(m))
}

// start starts a ground for a test.
func start(t *testing.T, kind string) Ground {
	t.Helper()
	if testing.Short() && kind != "file" {
		t.Skip("it takes servers")
	}
	g, err := New(expect.Within(t), kind, t.TempDir())
	expect.OK(t, err)
	t.Cleanup(g.Close)
	t.Logf("%s: %s", kind, g.Server())
	return g
}

// sight prepares the observation of a fault, and returns a function that looks
// for the fault: nil means that it is there.
type sight = func(t *testing.T, s *servers) func(ctx context.Context, e Extent) error

// tryAll begins and ends each fault of a ground, checks that its sight sees it,
// and takes a step through every site afterwards. The faults are dealt out to so
// many grounds.
func tryAll[G Ground](t *testing.T, kind string, grounds int, sights map[string]func(*testing.T, G) func(context.Context, Extent) error) {
	t.Parallel()
	for i := range grounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			trySome(t, start(t, kind).(G), sights, func(fault int) bool { return fault%grounds == i })
		})
	}
}

// trySome tries those faults of a ground that are chosen.
func trySome[G Ground](t *testing.T, g G, sights map[string]func(*testing.T, G) func(context.Context, Extent) error, chosen func(fault int) bool) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	for i, f := range g.Faults() {
		seen[f.Name] = true
		if !chosen(i) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			ctx, began := expect.Within(t), time.Now()
			prepare := sights[f.Name]
			if prepare == nil {
				t.Fatal("nobody looks whether it happens")
			}
			there := prepare(t, g)
			for {
				err := once(ctx, t, f, r, there)
				if err == nil {
					break
				}
				if !passing[f.Name] || ctx.Err() != nil {
					t.Fatalf("not seen: %v", err)
				}
			}
			expect.OK(t, g.Settle(ctx))
			stepEverywhere(t, g)
			t.Logf("%v", time.Since(began).Round(time.Millisecond))
		})
	}
	for name := range sights {
		if !seen[name] {
			t.Errorf("no fault %q", name)
		}
	}
}

// passing are over before they are ended, on a busy machine before anybody has
// looked. They are begun again until they are seen.
var passing = map[string]bool{"server: CLIENT PAUSE ALL": true, "server: DEBUG SLEEP": true}

// once begins and ends a fault, and says why it was not seen.
func once(ctx context.Context, t *testing.T, f Fault, r *rand.Rand, there func(context.Context, Extent) error) error {
	t.Helper()
	e, err := f.Begin(ctx, r)
	expect.OK(t, err)
	while, cancel := ctx, context.CancelFunc(func() {})
	if passing[f.Name] {
		while, cancel = context.WithTimeout(ctx, 1500*time.Millisecond)
	}
	defer cancel()
	unseen := until(while, func(ctx context.Context) error { return there(ctx, e) })
	if f.End != nil {
		expect.OK(t, f.End(ctx))
	}
	return unseen
}

// stepEverywhere acquires and releases through every site.
func stepEverywhere(t *testing.T, g Ground) {
	t.Helper()
	ctx := expect.Within(t)
	for site := range Sites {
		// A first attempt fails after three seconds, and machines stall for longer.
		expect.OK(t, until(ctx, func(ctx context.Context) error { return g.Link(site).step(ctx, "x") }))
	}
}

func init() { redis.SetLogger(silence{}) }

// silence keeps go-redis from telling what the tests do on purpose.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// The user is the one that the documentation tells people to make.
func TestRightsAreTheDocumentedOnes(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "redis.md"))
	expect.OK(t, err)
	m := regexp.MustCompile("(?ms)^ACL SETUSER sema (.*?)\n```").FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/redis.md has no user")
	}
	documented := strings.Fields(strings.ReplaceAll(string(m[1]), "\\\n", " "))
	if given := strings.Fields(rights); !slices.Equal(given, documented) {
		t.Errorf("given: %v\ndocumented: %v", given, documented)
	}
}
