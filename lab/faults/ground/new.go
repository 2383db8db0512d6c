package ground

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
)

// grounds are all there are, in the order of their tables.
var grounds = []struct {
	kind  string
	start func(ctx context.Context, kind string, h *host) (Ground, error)
}{
	{"standalone", newStandalone},
	{"standalone-aof", newStandalone},
	{"standalone-tls", newStandalone},
	{"sentinel", newSentinel},
	{"sentinel-replicas", newSentinel},
	{"cluster", newCluster},
	{"file", newFiles},
	{"postgres", newDatabase},
	{"postgres-sync", newDatabase},
	{"postgres-pgbouncer", newDatabase},
}

// Kinds lists the grounds there are.
func Kinds() []string {
	var kinds []string
	for _, g := range grounds {
		kinds = append(kinds, g.kind)
	}
	return kinds
}

// New starts a ground. It keeps its files in dir, which is empty and exists. On
// failure nothing is left running.
func New(ctx context.Context, kind string, dir string) (Ground, error) {
	i := slices.Index(Kinds(), kind)
	if i < 0 {
		return nil, fmt.Errorf("ground: no ground %q; there are %v", kind, Kinds())
	}
	h := &host{dir: dir}
	var made Ground
	err := caught(func() (err error) {
		made, err = grounds[i].start(ctx, kind, h)
		return err
	})
	if err != nil {
		h.close()
		return nil, fmt.Errorf("ground: %s: %w", kind, err)
	}
	return made, nil
}

// base is what all grounds have.
type base struct {
	*host
	kind, version string
	faults        []Fault

	mu        sync.Mutex
	accidents []Accident
}

// Kind implements Ground.
func (b *base) Kind() string { return b.kind }

// Server implements Ground.
func (b *base) Server() string { return b.version }

// Faults implements Ground.
func (b *base) Faults() []Fault { return slices.Clone(b.faults) }

// Accidents implements Ground.
func (b *base) Accidents() []Accident {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.accidents)
}

// Close implements Ground.
func (b *base) Close() { b.close() }

// host takes a test's place under the servers of package redistest.
type host struct {
	dir string

	mu       sync.Mutex
	cleanups []func()
}

// failure is what Fatalf throws, and caught returns.
type failure struct{ error }

// Helper implements redistest.TB.
func (h *host) Helper() {}

// Fatalf implements redistest.TB.
func (h *host) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Cleanup implements redistest.TB.
func (h *host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

// TempDir implements redistest.TB.
func (h *host) TempDir() string {
	dir, err := os.MkdirTemp(h.dir, "")
	if err != nil {
		h.Fatalf("%w", err)
	}
	return dir
}

// close undoes all that was started, the last first.
func (h *host) close() {
	h.mu.Lock()
	all := h.cleanups
	h.cleanups = nil
	h.mu.Unlock()
	for _, undo := range slices.Backward(all) {
		undo()
	}
}

// caught runs f and returns what it threw by Fatalf.
func caught(f func() error) (err error) {
	defer func() {
		switch thrown := recover().(type) {
		case nil:
		case failure:
			err = thrown.error
		default:
			panic(thrown)
		}
	}()
	return f()
}
