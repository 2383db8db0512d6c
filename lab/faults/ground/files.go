package ground

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"sema/engine"
	"sema/engines/fileengine"
	"sema/internal/protocol"
)

// files is a ground of one directory. All its sites reach the same.
type files struct {
	base
	dir string
}

func newFiles(ctx context.Context, kind string, h *host) (Ground, error) {
	g := &files{base: base{host: h, kind: kind, version: "files, " + runtime.GOOS}, dir: filepath.Join(h.dir, "sema")}
	if filesCanBeHarmed {
		g.faults = g.fileFaults()
	}
	return g, g.Settle(ctx)
}

// Link implements Ground.
func (g *files) Link(int) Link { return Link{URL: "file://" + filepath.ToSlash(g.dir)} }

// Settle implements Ground. A step works, and no log is locked for good.
func (g *files) Settle(ctx context.Context) error {
	err := g.Link(0).step(ctx, ownName)
	for _, path := range g.logs() {
		if err == nil {
			err = locked(ctx, path, func(*os.File) error { return nil })
		}
	}
	return err
}

// ownName is the semaphore of the ground itself.
const ownName = "ground"

// Left implements Ground. One of some processes sweeps away what has been idle for a
// minute, some files at a time. So the files are made to look idle, and processes
// come until a hundred in a row have swept nothing. Of the rest the logs of semaphores that nobody
// uses have a time to live, unless they are pinned or paused.
func (g *files) Left(ctx context.Context) ([]string, error) {
	var names []string
	for before, same := -1, 0; same < 100; same++ {
		if len(names) != before {
			before, same = len(names), 0
		}
		err := g.Link(0).step(ctx, ownName)
		if err == nil {
			names, err = g.backdate()
		}
		if err != nil {
			return nil, err
		}
	}
	ends, err := g.mortal(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		_, hash, _ := strings.Cut(strings.TrimSuffix(name, ".log"), "~")
		return ends[hash]
	}), nil
}

// mortal has the semaphores that end by themselves, by the hash in their files' names.
func (g *files) mortal(ctx context.Context) (hashes map[string]bool, err error) {
	e, err := fileengine.New(g.dir, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	names, err := e.List(ctx)
	if err != nil {
		return nil, err
	}
	hashes = map[string]bool{}
	for _, name := range names {
		session, err := e.Open(name, engine.Client{}, func(protocol.Notification) {})
		if err != nil {
			return nil, err
		}
		is, err := session.State(ctx)
		if err = errors.Join(err, session.Close()); err != nil {
			return nil, err
		}
		if !is.Pinned && !is.Paused && len(is.Holders)+len(is.Waiters) == 0 {
			sum := sha256.Sum256([]byte(name))
			hashes[hex.EncodeToString(sum[:8])] = true
		}
	}
	return hashes, nil
}

// backdate makes all files look as if nobody had used them for an hour, and
// lists them, but for the engine's and the ground's own.
func (g *files) backdate() (names []string, err error) {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return nil, err
	}
	old := time.Now().Add(-time.Hour)
	for _, f := range entries {
		path := filepath.Join(g.dir, f.Name())
		if err := os.Chtimes(path, old, old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if !isOwn(path) {
			names = append(names, f.Name())
		}
	}
	return names, nil
}

func isOwn(path string) bool {
	own, _ := filepath.Match(ownName+"~*.log", filepath.Base(path))
	return own
}

// logs are the paths of the semaphores' logs, but for the ground's own.
func (g *files) logs() []string {
	paths, _ := filepath.Glob(filepath.Join(g.dir, "*~*.log"))
	return slices.DeleteFunc(paths, isOwn)
}

// locked does something with a log under its lock.
func locked(ctx context.Context, path string, do func(*os.File) error) error {
	f, err := lock(ctx, path)
	if f == nil {
		return err
	}
	defer func() { _ = f.Close() }() // which unlocks it
	return do(f)
}

// lock opens a log and takes its lock. There is no file if the log is gone. A log
// that was written anew meanwhile is locked again.
func lock(ctx context.Context, path string) (f *os.File, err error) {
	err = until(ctx, func(context.Context) (err error) {
		f, err = os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			f = nil
			return nil
		}
		if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				_ = f.Close()
				f = nil
			}
		}()
		if err := tryLock(f); err != nil {
			return err
		}
		here, err := f.Stat()
		if err != nil {
			return err
		}
		there, err := os.Stat(path)
		if err != nil || !os.SameFile(here, there) {
			return fmt.Errorf("%s was written anew", path)
		}
		return nil
	})
	return f, err
}
