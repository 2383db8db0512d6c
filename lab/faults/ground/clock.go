package ground

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"sema/internal/fixture/history"
)

//go:embed shim/clock.c
var clockSource []byte

// clocks gives servers clocks of their own, where that is possible: on Linux,
// with a C compiler.
type clocks struct {
	*host
	library string // empty: not possible
}

// clock is the time of day of one server, which can be stepped.
type clock struct{ file *os.File }

func newClocks(ctx context.Context, h *host) *clocks {
	c := &clocks{host: h}
	if runtime.GOOS != "linux" {
		return c
	}
	source, library := filepath.Join(h.dir, "clock.c"), filepath.Join(h.dir, "clock.so")
	if os.WriteFile(source, clockSource, 0o600) != nil {
		return c
	}
	if exec.CommandContext(ctx, "cc", "-O2", "-shared", "-fPIC", "-o", library, source).Run() == nil {
		c.library = library
	}
	return c
}

// next makes a clock, and the environment of the server that goes by it. There
// is neither where clocks are not possible.
func (c *clocks) next() (*clock, []string) {
	if c.library == "" {
		return nil, nil
	}
	f, err := os.Create(filepath.Join(c.TempDir(), "clock"))
	if err != nil {
		c.Fatalf("clock: %w", err)
	}
	c.Cleanup(func() { _ = f.Close() })
	own := &clock{file: f}
	if err := own.set(0); err != nil {
		c.Fatalf("%w", err)
	}
	return own, []string{"LD_PRELOAD=" + c.library, "GROUND_CLOCK=" + f.Name()}
}

// set puts the clock so far ahead of the machine's.
func (c *clock) set(ahead time.Duration) error {
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Microseconds())), 0); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	return nil
}

// ahead is how far the clock is ahead of the machine's.
func (c *clock) ahead() (time.Duration, error) {
	b := make([]byte, 8)
	if _, err := c.file.ReadAt(b, 0); err != nil {
		return 0, fmt.Errorf("clock: %w", err)
	}
	return time.Duration(int64(binary.NativeEndian.Uint64(b))) * time.Microsecond, nil
}

// step is how far clocks are stepped.
const step = 1500 * time.Millisecond

// clockFaults are steps of the servers' clocks, of all by as much: where a failover
// forgets grants, tokens follow the clocks, which so must agree. They are not taken
// back: a clock that was put right would be stepped once more.
func (s *servers) clockFaults() []Fault {
	fault := func(name string, by time.Duration, e history.Excuse) Fault {
		return Fault{
			Name: name, Note: fmt.Sprintf("%v, of all servers; the clocks stay so", by), Excuses: e, Alone: true,
			Begin: func(context.Context, *rand.Rand) (Extent, error) {
				for _, n := range s.nodes {
					ahead, err := n.clock.ahead()
					if err != nil {
						return Extent{}, err
					}
					if err := n.clock.set(ahead + by); err != nil {
						return Extent{}, err
					}
				}
				return Extent{}, nil
			},
		}
	}
	// A lease that ends early, or a waiter's ticket: others are granted.
	forward := fault("server's clock stepped forward", step, history.Excuse{Limit: true, Order: true, Leases: step})
	// The queue is in the order of the server's clock.
	back := fault("server's clock stepped back", -step, history.Excuse{Order: true})
	return []Fault{forward, back}
}
