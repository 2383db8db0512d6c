package fileengine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
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
	if e.timer == nil {
		e.timer = time.AfterFunc(e.tickEvery(), e.tick)
	}
	return nil
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
			l.look()
		}
	}
	return paths
}

// message is for another process: that a client is told something, or that the
// client's log has something for its process to see.
func (s *step) message(client string, n *engine.Notification) []byte {
	w := &writer{b: make([]byte, 2, 128)}
	w.text(client)
	if n != nil {
		w.uint(1 | w.bool(n.Ask, 1))
		w.uint(uint64(len(n.Grants)))
		for _, g := range n.Grants {
			w.id(g.ID, client)
			w.int(g.Token)
			w.int(int64(g.Slot))
			w.int(g.Ticket)
			w.duration(s.log.engine.uptime() + time.Until(g.Until)) // by the clock of all
		}
	}
	if len(w.b) > maxMessage {
		return s.message(client, nil)
	}
	if n == nil {
		w.uint(0)
		w.uint(0)
	}
	binary.LittleEndian.PutUint16(w.b, uint16(len(w.b)-2))
	return w.b
}

// receive takes in the messages of other processes, until the inbox is closed.
func (e *Engine) receive(in *inbox) {
	buf := make([]byte, 64<<10)
	have := 0
	for {
		n, err := in.read(buf[have:])
		if err != nil {
			return
		}
		b := buf[:have+n]
		for len(b) >= 2 {
			size := int(binary.LittleEndian.Uint16(b))
			if size > len(b)-2 && size <= maxMessage {
				break // the rest follows
			}
			if size == 0 || size > maxMessage || !e.heed(b[2:2+size]) {
				e.lookAll(false) // called to, or not understood
				b = b[:min(len(b), 2)]
			}
			b = b[min(len(b), 2+size):]
		}
		have = copy(buf, b)
		if n > fullInbox {
			e.lookAll(false)
		}
	}
}

// heed carries out a message.
func (e *Engine) heed(b []byte) (ok bool) {
	r := &reader{b: string(b)}
	client, bits := r.text(), r.uint()
	n := engine.Notification{Ask: bits&2 != 0}
	now := time.Now()
	for range r.count() {
		g := engine.Grant{ID: r.id(client), Token: r.int(), Slot: int(r.int()), Ticket: r.int()}
		g.Until = now.Add(r.duration() - e.uptime())
		n.Grants = append(n.Grants, g)
	}
	if r.bad {
		return false
	}
	session := e.session(client)
	switch {
	case session == nil: // closed meanwhile
	case bits == 0:
		// Not at once: who has been handed a permit has better use for the
		// processor now.
		time.AfterFunc(lookSoon, session.log.look)
	default:
		session.deliver(n)
	}
	return true
}

// rally asks all living processes to look at their logs, and counts them.
func (e *Engine) rally() (living int) {
	paths, _ := filepath.Glob(e.path("*" + lifeSuffix))
	for _, path := range paths {
		if path == e.life(e.process) {
			continue
		}
		if out, alive := openOutbox(path); alive {
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
	in := e.inbox
	if e.timer != nil {
		e.timer.Stop()
	}
	e.mu.Unlock()
	if in == nil {
		return nil
	}
	in.close()
	if out, alive := openOutbox(in.path); !alive || !e.lives {
		out.close()
		_ = os.Remove(in.path)
	} else {
		out.close() // whoever sweeps removes it
	}
	e.sweepSometimes()
	return nil
}

const (
	sweepEvery = time.Minute
	sweepMost  = 50
	sweptFile  = "swept"
)

// sweepSometimes sweeps if nobody has for a while.
func (e *Engine) sweepSometimes() {
	info, err := os.Lstat(e.path(sweptFile))
	if err == nil && time.Since(info.ModTime()).Abs() < sweepEvery {
		return
	}
	if f, err := os.OpenFile(e.path(sweptFile), os.O_CREATE|os.O_WRONLY|noFollow, e.mode); err == nil {
		if e.options.Shared {
			_ = f.Chmod(e.mode)
		}
		now := time.Now()
		_ = os.Chtimes(e.path(sweptFile), now, now)
		_ = f.Close()
		e.sweep()
	}
}

// sweep removes some of what the dead left: their pipes, what they were about
// to write, and semaphores that are no more.
func (e *Engine) sweep() {
	dir, err := os.Open(e.dir)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	removed := 0
	for _, name := range names {
		info, err := os.Lstat(e.path(name))
		if err != nil || time.Since(info.ModTime()) < sweepEvery || removed >= sweepMost {
			continue // what is new may be about to come alive
		}
		process, _, _ := strings.Cut(strings.TrimSuffix(name, lifeSuffix), "-")
		switch filepath.Ext(name) {
		case lifeSuffix, tempSuffix:
			out, alive := openOutbox(e.life(process))
			out.close()
			if !alive && os.Remove(e.path(name)) == nil {
				removed++
			}
		case logSuffix:
			if m, ok := e.glance(name); ok && m.ledger.Over(e.timeOf(m)) && e.removeOver(m.Name) {
				removed++
			}
		}
	}
}

// removeOver removes the log of a semaphore that is no more, if that is still
// so under its lock.
func (e *Engine) removeOver(name string) (removed bool) {
	path := e.path(fileName(name))
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if ok, err := lockFile(f, false); !ok || err != nil {
		return false
	}
	defer unlockFile(f)
	here, err1 := f.Stat()
	there, err2 := os.Lstat(path)
	if err1 != nil || err2 != nil || !os.SameFile(here, there) {
		return false
	}
	m, ok := e.glance(fileName(name))
	return ok && m.ledger.Over(e.timeOf(m)) && os.Remove(path) == nil
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

// hash is what is distinct in the name of the log's file.
func (l *log) hash() string {
	sum := sha256.Sum256([]byte(l.name))
	return hex.EncodeToString(sum[:8])
}
