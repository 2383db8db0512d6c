package fileengine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sema/engine"
)

// compactAt is the smallest size at which a log is rewritten, provided that it is more
// than twice as long as its header. A process that opens a log reads all of it.
const compactAt = 8 << 10

// quiet is longer than the time between two writes to a used log, with usual leases. A
// log that is silent for longer may have a problem.
const quiet = 20 * time.Second

var errNoLog = errors.New("there is no log")

// log is the file of a semaphore together with this process's image of it.
//
// All processes append to the file under its lock, which the kernel releases when a
// process dies. After the same record they have the same ledger. If the file was
// removed, cut or overwritten, the first process that notices and has a permit or ticket
// in it writes it again. A process without one asks the others to do so, and begins a new
// log if none of them does within a second.
type log struct {
	engine *Engine
	name   string
	path   string

	sessions map[string]*session // guarded by engine.mu

	stepLock    chan struct{} // the lock of the fields below: full during a step of this process
	lookPending atomic.Bool   // a look will begin soon
	readWhole   atomic.Bool   // the next step reads the whole file

	watching sync.Mutex // and not stepLock: what is watched ends also while a step waits for another process
	watches  map[string]*watcher

	// Guarded by stepLock.
	image
	file    *os.File
	timer   *time.Timer // starts a look when the first lease ends
	seen    fs.FileInfo // a file that was checked to be this log
	sticky  bool        // the file has the sticky bit
	reopen  bool        // image does not come from file
	fresh   bool        // the whole image was read since the last step
	changed bool        // the log was replaced, and holders and waiters may have read the old one
	closed  bool
}

// lockForStep locks the log for a step, in this process and among all processes, and reads the
// new records. After an error the log is not locked. With passive, it leaves a missing or
// damaged log to other processes.
func (l *log) lockForStep(ctx context.Context, create, passive bool) error {
	select {
	case l.stepLock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.lookPending.Store(false)
	if l.closed {
		<-l.stepLock
		return engine.ErrClosed
	}
	living, pause := 0, 2*time.Millisecond
	for try := 0; ; try++ {
		replace := try > 0 && living == 0 || try == 10
		err := l.openAndLock(ctx, create, replace)
		if err == nil {
			return nil
		}
		if errors.Is(err, errGaveUp) {
			return ctx.Err() // lock's goroutine releases the file's lock and then stepLock
		}
		if !errors.Is(err, errDamaged) || passive || ctx.Err() != nil {
			<-l.stepLock
			return err
		}
		if try == 0 {
			living = l.engine.wakeAll()
		}
		if living > 0 || try == 0 {
			time.Sleep(pause) // the log may be new, and its header not written yet
			pause = min(2*pause, 200*time.Millisecond)
		}
	}
}

// openAndLock opens and locks the file and reads the new records. After an error nothing is
// locked. With replace, it replaces a damaged log.
func (l *log) openAndLock(ctx context.Context, create, replace bool) error {
	for {
		made, err := l.open(create)
		if err != nil {
			return err
		}
		if err := l.lock(ctx); err != nil {
			return err
		}
		info, is := fileAt(l.path, l.file)
		if !is {
			l.unlock() // the file was replaced or removed
			l.closeFile()
			continue
		}
		l.sticky = info.Mode()&fs.ModeSticky != 0
		err = l.read(info.Size())
		if made || errors.Is(err, errDamaged) && (replace || l.hasOwn()) {
			err = l.recreate(made)
		}
		if err != nil {
			l.unlock()
		}
		return err
	}
}

// stale reports whether the file is not the log that was read, or has been silent for so
// long that there may be a problem. It costs much less than a look.
func (l *log) stale() bool {
	select {
	case l.stepLock <- struct{}{}:
		defer func() { <-l.stepLock }()
	default:
		return false // a running step reads the log
	}
	if !l.hasOwn() {
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

// hasOwn reports whether this process has permits or tickets in its image of the log. Then
// a missing log was removed by mistake.
func (l *log) hasOwn() (has bool) {
	if l.ledger == nil {
		return false
	}
	now := l.now(l.engine.moment())
	l.ledger.Holders(func(id engine.ID, client string, _ bool) {
		_, _, valid := l.ledger.Permit(now, id)
		has = has || valid && l.isOwn(client)
	})
	if !has {
		_, has = l.ledger.InFront(l.isOwn)
	}
	return has
}

func (l *log) isOwn(client string) bool { return processOf(client) == l.engine.process }

// open opens the file. It creates a missing file if create is set, or if this process has
// permits or tickets in the log.
func (l *log) open(create bool) (made bool, err error) {
	for l.file == nil {
		f, err := os.OpenFile(l.path, os.O_RDWR|noFollow, 0)
		missing := errors.Is(err, fs.ErrNotExist)
		if missing && (create || l.hasOwn()) {
			if err := l.engine.ensureInbox(true); err != nil {
				return false, err
			}
			f, err = l.make()
			if made = err == nil; made {
				l.engine.created.Add(1)
			}
		} else if missing {
			l.image = image{}
			return false, errNoLog
		}
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = &os.PathError{Op: "open", Path: l.path, Err: errNoFile}
		}
		if err != nil {
			_ = f.Close()
			return false, err
		}
		l.file, l.reopen = f, true
	}
	return made, nil
}

// make creates an empty file, unless there is one. The others of a group never see a file that
// they cannot open yet.
func (l *log) make() (*os.File, error) {
	if !l.engine.options.Shared {
		return l.engine.create(l.path, os.O_EXCL)
	}
	f, err := l.engine.create(l.temp(), os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	err = os.Link(l.temp(), l.path)
	_ = os.Remove(l.temp())
	if err != nil {
		_ = f.Close()
	}
	return f, err
}

// temp is the path of a file of this process that is to become the log.
func (l *log) temp() string {
	return l.engine.path(l.engine.process + "-" + fileName(l.name) + tempSuffix)
}

// errGaveUp says that ctx ended while lock waited.
var errGaveUp = errors.New("gave up")

// lock waits for the file's lock, in the kernel. If ctx ends first, a goroutine waits on:
// it releases the lock as soon as it has it, and then stepLock.
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
			<-l.stepLock
		}
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		close(left)
		return errGaveUp
	}
}

// unlock releases the file's lock.
func (l *log) unlock() {
	if l.file != nil {
		unlockFile(l.file)
	}
}

// closeFile closes the file, and keeps the image.
func (l *log) closeFile() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// read reads the records that other processes have appended, or the whole file. It
// truncates an invalid record at the end: its process died while it wrote.
func (l *log) read(size int64) error {
	readWhole := l.readWhole.Swap(false)
	if l.ledger != nil && !l.reopen && size >= l.end {
		tail := make([]byte, size-l.end)
		if _, err := l.file.ReadAt(tail, l.end); err != nil {
			return err
		}
		if len(l.replay(tail)) == 0 && !readWhole {
			return nil
		}
	}
	all := make([]byte, size)
	if _, err := l.file.ReadAt(all, 0); err != nil {
		return err
	}
	m, err := readImage(all)
	if err == nil && m.Name != l.name {
		err = errDamaged
	}
	if err != nil {
		return err
	}
	other := m.identity != l.identity
	cut := !l.reopen && m.headerEnd == l.headerEnd && (m.end != l.end || m.sum != l.sum) // the file has lost its last records, and may have new ones
	if other || cut {
		l.changed = l.hasOwn()
	}
	if m.end < size {
		if err := l.file.Truncate(m.end); err != nil {
			return err
		}
	}
	l.image, l.reopen, l.fresh = m, false, true
	return nil
}

// recreate writes the log from this process's image if it has permits or tickets in it, or
// else an empty log.
func (l *log) recreate(made bool) error {
	l.changed = l.hasOwn()
	if !l.changed {
		l.image = newImage(l.newHeader())
	}
	if made {
		return l.overwrite()
	}
	return l.rewrite()
}

// newHeader makes the header of a new log. The log's time starts at the system time.
func (l *log) newHeader() header {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	last := l.engine.moment()
	last.At = last.Wall
	return header{identity: identity{l.name, binary.LittleEndian.Uint64(id[:])}, Last: last}
}

// append writes records. After an error the file has none of them.
func (l *log) append(b []byte) error {
	if _, err := l.file.WriteAt(b, l.end); err != nil {
		_ = l.file.Truncate(l.end)
		l.reopen = true // the ledger is ahead of the file
		return err
	}
	l.end += int64(len(b))
	if l.end > compactAt && l.end > 2*l.headerEnd {
		_ = l.rewrite() // after an error the log is just longer than necessary
	}
	l.protect()
	return nil
}

// protect sets the sticky bit of a log that has to last although nobody touches it. systemd-tmpfiles
// keeps such a file. Only the owner may set the bit, so another user replaces the file.
func (l *log) protect() {
	const soon = 7 * 24 * time.Hour // cleaners of temporary directories leave files for longer
	lasts, mode := l.ledger.Outlasts(l.Last.At+soon.Microseconds()), l.engine.mode
	if lasts == l.sticky || runtime.GOOS == "windows" {
		return
	}
	if lasts {
		mode |= fs.ModeSticky
	}
	if err := l.file.Chmod(mode); errors.Is(err, fs.ErrPermission) && l.rewrite() == nil {
		_ = l.file.Chmod(mode)
	}
}

// rewrite replaces the file by a new, locked one that has only a header.
func (l *log) rewrite() error {
	if runtime.GOOS == "windows" { // which cannot replace an open file
		return l.overwrite()
	}
	next := l.image
	b := next.encodeLog()
	f, err := l.engine.create(l.temp(), os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		_, err = lockFile(f, false)
	}
	if err == nil {
		err = os.Rename(l.temp(), l.path)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(l.temp())
		return err
	}
	l.closeFile()
	l.file, l.image, l.reopen, l.sticky = f, next, false, false
	return nil
}

// overwrite does the same within the file. If this process dies meanwhile, the log is
// damaged.
func (l *log) overwrite() error {
	next := l.image
	b := next.encodeLog()
	err := l.file.Truncate(0)
	if err == nil {
		_, err = l.file.WriteAt(b, 0)
	}
	l.image, l.reopen = next, err != nil
	return err
}

// remove deletes the log of a semaphore that has ended.
func (l *log) remove() error {
	err := os.Remove(l.path)
	l.unlock()
	l.closeFile()
	l.image = image{}
	return err
}
