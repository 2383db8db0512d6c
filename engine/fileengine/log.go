package fileengine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/ledger"
)

// compactAt is the size from which a log is written anew, if it has grown to
// twice what is in it. A process that opens the log reads that much.
const compactAt = 8 << 10

// quiet is how long nobody writes to a log where leases are usual and all is
// well.
const quiet = 20 * time.Second

var errNoLog = errors.New("there is no log")

// log is a semaphore's file and what this process has read of it.
//
// All processes append to it under its lock, which the kernel gives back when
// a process dies, and have the same ledger after the same record. A log that
// is removed, cut or overwritten is written again by the first living process
// that notices and had a part in it. A process that had none asks the others
// to, and begins a new one when none of them does within a second.
type log struct {
	engine *Engine
	name   string
	path   string

	sessions int // guarded by engine.mu

	mine    chan struct{} // held during a step of this process
	pending atomic.Bool   // a look is about to begin
	doubted atomic.Bool   // what was read of it is to be compared with what is there

	// Guarded by mine.
	image
	file    *os.File
	watches map[string]*watcher
	timer   *time.Timer // looks when the first lease ends
	seen    fs.FileInfo // a file that was found to be of this log
	reopen  bool        // file is another than that which image was read from
	fresh   bool        // image was read as a whole since the last step
	changed bool        // the log was replaced since holders and waiters read it
	closed  bool
}

// take gets the log for a step: alone in this process and among all, and up to
// date. On an error it is not taken. With passive, a log that is not there or
// damaged is left to others.
func (l *log) take(ctx context.Context, create, passive bool) error {
	select {
	case l.mine <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.pending.Store(false)
	if l.closed {
		<-l.mine
		return engine.ErrClosed
	}
	living, pause := 0, 2*time.Millisecond
	for try := 0; ; try++ {
		anew := try > 0 && living == 0 || try == 10
		err := l.enter(ctx, create, anew)
		if err == nil {
			return nil
		}
		if errors.Is(err, errLeft) {
			return ctx.Err() // lock's goroutine gives mine back after the file's lock
		}
		if unknown := (*formError)(nil); errors.As(err, &unknown) && !passive {
			l.engine.rally() // newer programs see the sign of this one, and write what it knows
		}
		if !errors.Is(err, errDamaged) || passive || ctx.Err() != nil {
			<-l.mine
			return err
		}
		if try == 0 {
			living = l.engine.rally()
		}
		if living > 0 || try == 0 {
			time.Sleep(pause) // it may be new, and its maker not there yet
			pause = min(2*pause, 200*time.Millisecond)
		}
	}
}

// enter opens and locks the file and reads on. On an error nothing is locked.
func (l *log) enter(ctx context.Context, create, anew bool) error {
	for {
		made, err := l.open(create)
		if err != nil {
			return err
		}
		if err := l.lock(ctx); err != nil {
			return err
		}
		here, err1 := l.file.Stat()
		there, err2 := os.Lstat(l.path)
		if err1 != nil || err2 != nil || !os.SameFile(here, there) {
			l.leave() // written anew, or removed
			l.shut()
			continue
		}
		err = l.read(here.Size())
		if made || errors.Is(err, errDamaged) && (anew || l.known()) {
			err = l.begin(made)
		}
		if err == nil && l.Boot != l.engine.boot {
			// Its clients ended with the host.
			l.image = newImage(l.newHeader(l.ledger.Save().Forgotten()))
			err = l.rewrite()
		}
		if err != nil {
			l.leave()
		}
		return err
	}
}

// stale reports whether the log is not the one that was read, or nobody has
// written to it for so long that something may be wrong. It is much cheaper
// than to look.
func (l *log) stale() bool {
	select {
	case l.mine <- struct{}{}:
		defer func() { <-l.mine }()
	default:
		return false // a step reads it
	}
	if !l.known() {
		return false
	}
	info, err := os.Lstat(l.path)
	if err != nil || time.Since(info.ModTime()).Abs() > quiet {
		return true
	}
	if l.seen == nil || !os.SameFile(l.seen, info) {
		f, err := os.OpenFile(l.path, os.O_RDONLY|noFollow, 0)
		if err != nil {
			return true
		}
		defer f.Close()
		var b [512]byte
		n, _ := f.ReadAt(b[:], 0)
		if id, ok := peek(b[:n]); !ok || id != l.identity {
			return true
		}
		l.seen = info
	}
	return false
}

// known reports whether this process has permits or tickets in the log, as far
// as it has read. Then the log has no business to be gone.
func (l *log) known() (known bool) {
	if l.ledger == nil {
		return false
	}
	now := l.now()
	l.ledger.Holders(func(id engine.ID, client string, _ bool) {
		_, _, valid := l.ledger.Permit(now, id)
		known = known || valid && l.isMine(client)
	})
	if !known {
		_, known = l.ledger.InFront(l.isMine)
	}
	return known
}

func (l *log) isMine(client string) bool { return processOf(client) == l.engine.process }

// open opens the file, and makes it if that is wanted or it was there before.
func (l *log) open(create bool) (made bool, err error) {
	for l.file == nil {
		f, err := os.OpenFile(l.path, os.O_RDWR|noFollow, 0)
		if errors.Is(err, fs.ErrNotExist) && (create || l.known()) {
			if err := l.engine.revive(true); err != nil {
				return false, err
			}
			f, err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, l.engine.mode)
			made = err == nil
		}
		switch {
		case errors.Is(err, fs.ErrExist):
			continue
		case errors.Is(err, fs.ErrNotExist) && (create || l.known()):
			return false, err // the directory was removed a moment ago, once more
		case errors.Is(err, fs.ErrNotExist):
			l.image = image{}
			return false, errNoLog
		case err != nil:
			return false, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = &os.PathError{Op: "open", Path: l.path, Err: errors.New("is not a file")}
		}
		if err == nil && made && l.engine.options.Shared {
			err = f.Chmod(l.engine.mode) // whatever the umask
		}
		if err != nil {
			_ = f.Close()
			return false, err
		}
		l.file, l.reopen = f, true
	}
	return made, nil
}

// errLeft says that ctx ended while the lock was waited for.
var errLeft = errors.New("left")

// lock waits for the file's lock, in the kernel. If ctx ends before, a goroutine
// waits on, gives the lock back at once, and then mine.
func (l *log) lock(ctx context.Context) error {
	f := l.file
	if ok, err := lockFile(f, false); ok || err != nil {
		return err
	}
	got := make(chan error)
	left := make(chan struct{})
	go func() {
		_, err := lockFile(f, true)
		select {
		case got <- err:
		case <-left:
			if err == nil {
				unlockFile(f)
			}
			<-l.mine
		}
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		close(left)
		return errLeft
	}
}

// leave gives back the file's lock.
func (l *log) leave() {
	if l.file != nil {
		unlockFile(l.file)
	}
}

// shut closes the file. What was read of it is kept.
func (l *log) shut() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// read takes in what others wrote since the last time, or all of it. What is
// not whole at the end was left by somebody who died, and is cut off.
func (l *log) read(size int64) error {
	doubted := l.doubted.Swap(false)
	if l.ledger != nil && !l.reopen && size >= l.end {
		tail := make([]byte, size-l.end)
		if _, err := l.file.ReadAt(tail, l.end); err != nil {
			return err
		}
		if len(l.replay(tail)) == 0 && !doubted {
			return nil
		}
	}
	all := make([]byte, size)
	if _, err := l.file.ReadAt(all, 0); err != nil {
		return err
	}
	m, err := readImage(all, l.engine.newest)
	if err == nil && m.Name != l.name {
		err = errDamaged
	}
	if err != nil {
		return err
	}
	other := m.identity != l.identity
	cut := !l.reopen && m.whole == l.whole && (m.end != l.end || m.sum != l.sum) // its end is gone, perhaps with another one since
	if other || cut {
		l.changed = l.known()
	}
	if m.end < size {
		if err := l.file.Truncate(m.end); err != nil {
			return err
		}
	}
	l.image, l.reopen, l.fresh = m, false, true
	return nil
}

// begin writes the log from what this process knows, or an empty one.
func (l *log) begin(made bool) error {
	l.changed = l.known()
	if !l.changed {
		l.image = newImage(l.newHeader(ledger.Snapshot{}))
	}
	if made {
		return l.overwrite()
	}
	return l.rewrite()
}

// newHeader begins a log now. Its clock goes on from the system's.
func (l *log) newHeader(s ledger.Snapshot) header {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return header{
		identity: identity{l.name, l.engine.boot, binary.LittleEndian.Uint64(id[:])}, State: s,
		Base: l.engine.wall().UnixMicro() - l.engine.uptime().Microseconds(),
	}
}

// now is the time of the log, which never goes back.
func (l *log) now() int64 { return max(l.last, l.Base+l.engine.uptime().Microseconds()) }

// until is a time of the log by this process's own clock, or a little earlier.
func (l *log) until(t int64) time.Time {
	now := time.Now()
	return now.Add(time.Duration(t-l.Base)*time.Microsecond - l.engine.uptime())
}

// append writes records. What fails half-way does not count.
func (l *log) append(b []byte) error {
	if _, err := l.file.WriteAt(b, l.end); err != nil {
		_ = l.file.Truncate(l.end)
		l.reopen = true // the ledger is ahead of the file
		return err
	}
	l.end += int64(len(b))
	if l.end > compactAt && l.end > 2*l.whole {
		_ = l.rewrite() // it only is longer than it need be
	}
	return nil
}

// rewrite replaces the file by one that has only a header, and locks it.
func (l *log) rewrite() error {
	if runtime.GOOS == "windows" { // where nobody can replace what is open
		return l.overwrite()
	}
	next := l.image
	b := next.text(l.engine.form())
	temp := l.engine.path(l.engine.process + "-" + fileName(l.name) + tempSuffix)
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC|noFollow, l.engine.mode)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil && l.engine.options.Shared {
		err = f.Chmod(l.engine.mode)
	}
	if err == nil {
		_, err = lockFile(f, false)
	}
	if err == nil {
		err = os.Rename(temp, l.path)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(temp)
		return err
	}
	l.shut()
	l.file, l.image, l.reopen = f, next, false
	return nil
}

// overwrite is rewrite within the file. Should this process die meanwhile, the
// log is damaged.
func (l *log) overwrite() error {
	next := l.image
	b := next.text(l.engine.form())
	err := l.file.Truncate(0)
	if err == nil {
		_, err = l.file.WriteAt(b, 0)
	}
	l.image, l.reopen = next, err != nil
	return err
}

// remove deletes the log of a semaphore that is no more.
func (l *log) remove() error {
	err := os.Remove(l.path)
	l.leave()
	l.shut()
	l.image = image{}
	return err
}
