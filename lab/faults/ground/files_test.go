package ground

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sema"
	"sema/engines/fileengine"
	"sema/internal/fixture/expect"
)

// look of a directory: the logs' contents, and all names.
type contents struct {
	logs  map[string]string
	names []string
}

func (g *files) contents(t *testing.T) contents {
	t.Helper()
	c := contents{logs: map[string]string{}}
	entries, _ := os.ReadDir(g.dir)
	for _, f := range entries {
		c.names = append(c.names, f.Name())
		if filepath.Ext(f.Name()) == ".log" {
			text, err := os.ReadFile(filepath.Join(g.dir, f.Name()))
			expect.OK(t, err)
			c.logs[f.Name()] = string(text)
		}
	}
	return c
}

// logOf is the one log that is not the ground's.
func (c contents) logOf() (string, bool) {
	for name, text := range c.logs {
		if !isOwn(name) {
			return text, true
		}
	}
	return "", false
}

func TestFaultsOfFiles(t *testing.T) {
	t.Parallel()
	pipes := func(c contents) (n int) {
		for _, name := range c.names {
			if filepath.Ext(name) == ".life" {
				n++
			}
		}
		return n
	}
	seen := map[string]func(g *files, before, after contents) bool{
		"files: half a record": func(_ *files, before, after contents) bool {
			a, _ := before.logOf()
			b, _ := after.logOf()
			return strings.HasPrefix(b, a) && len(b) == len(a)+25
		},
		"files: log cut": func(_ *files, before, after contents) bool {
			a, _ := before.logOf()
			b, _ := after.logOf()
			return len(b) > 0 && len(b) < len(a) && strings.HasPrefix(a, b)
		},
		"files: log overwritten": func(_ *files, _, after contents) bool {
			b, _ := after.logOf()
			return strings.Contains(b, "overwritten")
		},
		"files: log removed": func(_ *files, _, after contents) bool {
			_, there := after.logOf()
			return !there
		},
		"files: pipes removed": func(_ *files, before, after contents) bool {
			return pipes(before) == 1 && pipes(after) == 0
		},
		"files: directory removed": func(g *files, _, _ contents) bool {
			_, err := os.Stat(g.dir)
			return errors.Is(err, os.ErrNotExist)
		},
		"files: what the dead left": func(_ *files, before, after contents) bool {
			return len(after.names) == len(before.names)+2
		},
		"files: times set back": func(g *files, _, _ contents) bool {
			info, err := os.Stat(g.logs()[0])
			return err == nil && time.Since(info.ModTime()) > 30*time.Minute
		},
		"files: logs locked": func(g *files, _, _ contents) bool {
			f, err := os.OpenFile(g.logs()[0], os.O_RDWR, 0)
			if err != nil {
				return false
			}
			defer func() { _ = f.Close() }()
			return tryLock(f) != nil
		},
	}
	g := start(t, "file").(*files)
	for _, f := range g.Faults() {
		t.Run(f.Name, func(t *testing.T) {
			ctx := expect.Within(t)
			// A holder that makes no calls, so that nobody repairs the file
			// before the test looks.
			e, err := fileengine.New(g.dir, nil)
			expect.OK(t, err)
			s, err := sema.New(e, "x", 1, &sema.Options{Lease: time.Minute})
			expect.OK(t, err)
			p, err := s.Acquire(ctx)
			expect.OK(t, err)
			before := g.contents(t)
			_, err = f.Begin(ctx, rand.New(rand.NewPCG(1, 2)))
			expect.OK(t, err)
			if after := g.contents(t); seen[f.Name] == nil || !seen[f.Name](g, before, after) {
				t.Errorf("not seen: %v, before %v", after.names, before.names)
			}
			if f.End != nil {
				expect.OK(t, f.End(ctx))
			}
			expect.OK(t, g.Settle(ctx))
			_ = p.Release() // it may have been lost
			expect.OK(t, s.Close())
			expect.OK(t, e.Close())
			stepEverywhere(t, g)
			if f.Name == "files: what the dead left" {
				left, err := g.Left(ctx)
				expect.OK(t, err)
				if len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			}
		})
	}
}

// What the sweep does not take is left, and nothing else is.
func TestLeftOfFiles(t *testing.T) {
	t.Parallel()
	g := start(t, "file").(*files)
	ctx := expect.Within(t)
	stepEverywhere(t, g)
	left, err := g.Left(ctx)
	expect.OK(t, err)
	if len(left) > 0 {
		t.Errorf("left by who gave everything back: %v", left)
	}
	e, err := fileengine.New(g.dir, nil)
	expect.OK(t, err)
	s, err := sema.Operate(e, "pinned")
	expect.OK(t, err)
	expect.OK(t, s.Set(ctx, sema.Rule{Limit: 2}))
	expect.OK(t, s.Close())
	expect.OK(t, e.Close())
	left, err = g.Left(ctx)
	expect.OK(t, err)
	if len(left) != 1 || !strings.HasPrefix(left[0], "pinned~") {
		t.Errorf("left: %v; want the pinned limit", left)
	}
}

// What has no time to live is left, and nothing else is.
func TestLeftOfServers(t *testing.T) {
	t.Parallel()
	g := start(t, "standalone").(*servers)
	ctx := context.Background()
	for key, ttl := range map[string]time.Duration{"sema:{a}:state": 0, "sema:{b}:state": time.Minute, "other": 0} {
		expect.OK(t, g.nodes[0].admin.Set(ctx, key, "x", ttl).Err())
	}
	left, err := g.Left(ctx)
	expect.OK(t, err)
	if !slices.Equal(left, []string{"sema:{a}:state"}) {
		t.Errorf("left: %v", left)
	}
}
