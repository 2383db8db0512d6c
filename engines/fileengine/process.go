package fileengine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

const (
	// checkEvery is how often a process in use checks that its pipe still exists.
	checkEvery = 5 * time.Second
	// touchEvery is how often files are touched, so that cleaners of temporary
	// directories keep them.
	touchEvery = time.Hour
	// maxMessage is the largest message in bytes. Every system writes that many bytes to
	// a pipe in one piece.
	maxMessage = 512
	// lookDelay is the delay of a look that another process asked for.
	lookDelay = 2 * time.Millisecond
	// fullInbox is a number of bytes read at once, above which messages may have been
	// lost because the pipe was full.
	fullInbox = 3 << 10
)

// ensureInbox creates this process's pipe, before the process holds a permit or waits for one.
// It also creates a removed pipe or directory again. It checks for that only every
// checkEvery, unless now is set because a file was found missing.
func (e *Engine) ensureInbox(now bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	if e.inbox == nil && now {
		return prepareDir(e.dir, e.own, e.options.Shared) // without permits and tickets it needs no pipe
	}
	if e.inbox != nil && !now && time.Since(e.checked) < checkEvery {
		return nil
	}
	e.checked = time.Now()
	if e.inbox != nil && e.inbox.named() {
		return nil
	}
	in, err := newInbox(e.pipePath(e.process), e.mode)
	if errors.Is(err, os.ErrNotExist) {
		if err := prepareDir(e.dir, e.own, e.options.Shared); err != nil {
			return err
		}
		in, err = newInbox(e.pipePath(e.process), e.mode)
	}
	if err != nil {
		return err
	}
	e.created.Add(1)
	go e.receive(in)
	if e.inbox != nil {
		e.inbox.close()
	}
	e.inbox, e.touched = in, e.checked
	if e.timer == nil {
		e.timer = time.AfterFunc(tickEvery, e.tick)
	}
	return nil
}

// isAlive reports whether a process reads from the pipe at a path.
func isAlive(path string) bool {
	out, alive := openOutbox(path)
	out.close()
	return alive
}

// inboxRemoved reports whether this process's pipe was removed, so that others cannot find it.
func (e *Engine) inboxRemoved() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inbox != nil && !e.inbox.named()
}

// Life returns an open file that keeps this engine alive. While any process has a copy
// of the file open, the engine's permits stay taken until their leases end. So if a
// child process inherits the file, the permits survive when this process is killed. The
// caller closes the file.
func (e *Engine) Life() (*os.File, error) {
	if err := e.ensureInbox(false); err != nil {
		return nil, fail("open", "", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f, err := e.inbox.openReader()
	e.kept = e.kept || err == nil
	return f, fail("open", "", err)
}

// tickEvery is how often a process ticks.
var tickEvery = cmp.Or[time.Duration](pollEvery, lookEvery)

// tick runs from time to time. It finds changes whose message was lost and leases that
// ended while the head of the queue was stopped, and it checks and touches files.
func (e *Engine) tick() {
	_ = e.ensureInbox(false) // the next step reports the error
	e.mu.Lock()
	touch := time.Since(e.touched) > touchEvery
	if touch {
		e.touched = time.Now()
	}
	e.mu.Unlock()
	if touch {
		now := time.Now()
		for _, path := range append(e.lookAll(false), e.dir, e.pipePath(e.process)) {
			_ = os.Chtimes(path, now, now)
		}
	} else {
		e.lookAll(pollEvery == 0)
	}
	e.sweep()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.timer.Reset(tickEvery)
	}
}

// lookAll looks at all logs, or with needed only at the stale ones. It returns the paths
// of all.
func (e *Engine) lookAll(needed bool) (paths []string) {
	e.mu.Lock()
	logs := slices.Collect(maps.Values(e.logs))
	e.mu.Unlock()
	for _, l := range logs {
		paths = append(paths, l.path)
		if !needed || l.stale() {
			if !needed {
				l.readWhole.Store(true)
			}
			l.look()
		}
	}
	return paths
}

// wakeAll asks all other living processes to look at their logs, and returns their number.
func (e *Engine) wakeAll() (living int) {
	files, _ := os.ReadDir(e.dir)
	for _, f := range files {
		process, ok := strings.CutSuffix(f.Name(), lifeSuffix)
		if !ok || process == e.process {
			continue
		}
		if out, alive := openOutbox(e.pipePath(process)); alive {
			out.send([]byte{0, 0})
			out.close()
			living++
		}
	}
	return living
}

// Close implements sema.Engine. The permits of its sessions are lost. They are free at
// once, unless they are detached or Life keeps the engine alive.
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
	// Notify the sessions while this process still counts as alive: before another
	// process can be granted their permits.
	for _, s := range sessions {
		if !s.closed.Swap(true) {
			s.notify(protocol.Notification{Closed: true})
		}
	}
	for _, l := range logs {
		go l.close()
	}
	e.mu.Lock()
	in, kept := e.inbox, e.kept
	if e.timer != nil {
		e.timer.Stop()
	}
	e.mu.Unlock()
	if in == nil {
		return nil
	}
	in.close()
	if !kept || !isAlive(in.path) {
		_ = os.Remove(in.path)
	} // else a later sweep removes the pipe
	e.sweep()
	return nil
}

// fileName is the name of a semaphore's file. It is readable. It differs for all names,
// also on file systems that ignore case.
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
