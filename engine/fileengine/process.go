package fileengine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"sema/engine"
)

const (
	// checkEvery is how often a process that is in use sees to its file.
	checkEvery = 5 * time.Second
	// touchEvery keeps cleaners of temporary files away.
	touchEvery = time.Hour
	// maxMessage is what a pipe takes in one piece, at its smallest.
	maxMessage = 512
	// lookSoon is how long a process takes to look when it is told to.
	lookSoon = 2 * time.Millisecond
	// fullInbox is so much at once that more may have been lost.
	fullInbox = 3 << 10
)

// revive makes this process known as alive, before it holds or waits for
// anything, and makes what somebody removed again. now is for when something
// was found missing.
func (e *Engine) revive(now bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	if e.inbox == nil && now {
		return prepare(e.dir, e.own, e.options.Shared) // it takes no part itself
	}
	if e.inbox != nil && !now && time.Since(e.checked) < checkEvery {
		return nil
	}
	e.checked = time.Now()
	if e.inbox != nil && e.inbox.there() {
		return nil
	}
	in, err := newInbox(e.life(e.process), e.mode)
	if errors.Is(err, os.ErrNotExist) {
		if err := prepare(e.dir, e.own, e.options.Shared); err != nil {
			return err
		}
		in, err = newInbox(e.life(e.process), e.mode)
	}
	if err != nil {
		return err
	}
	go e.receive(in)
	if e.inbox != nil {
		e.inbox.close()
	}
	e.inbox, e.touched = in, e.checked
	e.sign()
	if e.timer == nil {
		e.timer = time.AfterFunc(e.tickEvery(), e.tick)
	}
	return nil
}

// unnamed reports whether this process had a pipe that others do not find.
func (e *Engine) unnamed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inbox != nil && !e.inbox.there()
}

// Life returns an open file. This engine counts as alive, and keeps its
// permits as long as their leases are renewed, until all copies of that file
// are closed, in whatever processes they are: a child that inherits it keeps
// the permits if this process is killed. The caller closes it.
func (e *Engine) Life() (*os.File, error) {
	if err := e.revive(false); err != nil {
		return nil, fail("open", "", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f, err := e.inbox.life()
	e.lives = e.lives || err == nil
	return f, fail("open", "", err)
}

func (e *Engine) tickEvery() time.Duration {
	if pollEvery > 0 {
		return pollEvery
	}
	return lookEvery
}

// tick looks at everything once in a while: at what no message came of, at
// leases that end while the head of the queue stands still, and at files.
func (e *Engine) tick() {
	_ = e.revive(false) // the next step says what is wrong
	e.mu.Lock()
	touch := time.Since(e.touched) > touchEvery
	if touch {
		e.touched = time.Now()
	}
	e.mu.Unlock()
	if touch {
		e.sign()
		now := time.Now()
		for _, path := range append(e.lookAll(false), e.dir, e.life(e.process)) {
			_ = os.Chtimes(path, now, now)
		}
		e.sweep()
	} else {
		e.lookAll(pollEvery == 0)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.timer.Reset(e.tickEvery())
	}
}

// lookAll looks at all logs, or only at those that need it, and returns their
// paths.
func (e *Engine) lookAll(needed bool) (paths []string) {
	e.mu.Lock()
	logs := slices.Collect(maps.Values(e.logs))
	e.mu.Unlock()
	for _, l := range logs {
		paths = append(paths, l.path)
		if !needed || l.stale() {
			if !needed {
				l.doubted.Store(true)
			}
			l.look()
		}
	}
	return paths
}

// rally asks all living processes to look at their logs, and counts them.
func (e *Engine) rally() (living int) {
	files, _ := os.ReadDir(e.dir)
	for _, f := range files {
		process, ok := strings.CutSuffix(f.Name(), lifeSuffix)
		if !ok || process == e.process {
			continue
		}
		if out, alive := openOutbox(e.life(process)); alive {
			out.send([]byte{0, 0})
			out.close()
			living++
		}
	}
	return living
}

// Close implements engine.Engine. What its sessions still hold is lost and,
// unless detached or kept by Life, comes back to the others at once.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	sessions := slices.Collect(maps.Values(e.sessions))
	logs := slices.Collect(maps.Values(e.logs))
	e.mu.Unlock()
	// Told while this process still counts as alive: before anybody else can
	// have what its sessions hold.
	for _, s := range sessions {
		s.mu.Lock()
		told := s.closed
		s.closed = true
		s.mu.Unlock()
		if !told {
			s.notify(engine.Notification{Closed: true})
		}
	}
	for _, l := range logs {
		go l.close()
	}
	e.mu.Lock()
	in, lives := e.inbox, e.lives
	if e.timer != nil {
		e.timer.Stop()
	}
	e.mu.Unlock()
	if in == nil {
		return nil
	}
	in.close()
	if out, alive := openOutbox(in.path); !alive || !lives {
		out.close()
		_ = os.Remove(in.path)
	} else {
		out.close() // a sweep removes it
	}
	e.sweepSometimes()
	return nil
}

// fileName is a semaphore's file: readable, and distinct for every name even
// where file systems take upper and lower case for the same.
func fileName(name string) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	sum := sha256.Sum256([]byte(name))
	return readable[:min(len(readable), 60)] + "~" + hex.EncodeToString(sum[:8]) + logSuffix
}
