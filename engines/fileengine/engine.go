package fileengine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// Options configure an engine. The zero value is for one user of one host.
type Options struct {
	// Shared lets all users of the directory's group use it. A new directory gets the
	// group of the user who creates it, or the group of its parent if that is setgid.
	// All files are writable by the group, whatever the umask. Default: one user.
	Shared bool
}

// Engine keeps semaphores in a directory. Create it with New and share it.
type Engine struct {
	dir     string
	own     bool // dir is DefaultDir
	options Options
	mode    os.FileMode // of files
	process string      // this engine's name, the first part of its clients' ids
	uptime  func() time.Duration
	wall    func() time.Time
	created atomic.Int64 // files since the last sweep

	mu       sync.Mutex
	inbox    *inbox // nil until the first Ask
	kept     bool   // Life was called
	checked  time.Time
	touched  time.Time
	timer    *time.Timer
	clients  uint64
	sessions map[string]*session
	logs     map[string]*log
	closed   bool
}

const (
	logSuffix  = ".log"
	lifeSuffix = ".life"
	tempSuffix = ".tmp"
)

// New makes an engine on a directory; "" means DefaultDir. It creates a missing directory
// for this user only, unless options.Shared is set. Nil options are the defaults.
func New(dir string, options *Options) (*Engine, error) {
	if options == nil {
		options = &Options{}
	}
	own := dir == ""
	dir, err := filepath.Abs(cmp.Or(dir, DefaultDir()))
	if err != nil {
		return nil, fail("open", "", err)
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	e := &Engine{
		dir: dir, own: own, options: *options, mode: 0o600,
		process: "f" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[:])),
		uptime:  uptime, wall: time.Now,
		sessions: map[string]*session{}, logs: map[string]*log{},
	}
	if e.options.Shared {
		e.mode = 0o660
	}
	if err := prepareDir(dir, own, e.options.Shared); err != nil {
		hint := "choose a directory of this user on a local disk: file:///path"
		if errors.Is(err, errNeedsShared) {
			hint = "file://" + filepath.ToSlash(dir) + "?shared, or Options.Shared"
		}
		return nil, &engine.Error{Op: "open", NotExecuted: true, Err: err, Hint: hint}
	}
	return e, nil
}

// Dir is the directory of the semaphores.
func (e *Engine) Dir() string { return e.dir }

func (e *Engine) path(file string) string { return filepath.Join(e.dir, file) }

// pipePath is the path of a process's pipe, which shows whether the process is alive.
func (e *Engine) pipePath(process string) string { return e.path(process + lifeSuffix) }

// create opens a file for writing. A missing file gets the mode of all files of the engine,
// regardless of the umask.
func (e *Engine) create(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|os.O_RDWR|os.O_CREATE|noFollow, e.mode)
	if err != nil || !e.options.Shared {
		return f, err
	}
	if err := f.Chmod(e.mode); err != nil && !errors.Is(err, fs.ErrPermission) { // of another user's file
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// fileAt returns the current properties of a file, and whether a path still names it.
func fileAt(path string, f *os.File) (info fs.FileInfo, is bool) {
	info, err := f.Stat()
	named, err2 := os.Lstat(path)
	return info, err == nil && err2 == nil && os.SameFile(info, named)
}

// Open implements sema.Engine.
func (e *Engine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	if err := engine.ValidateName(name); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fail("open", name, engine.ErrClosed)
	}
	l := e.logs[name]
	if l == nil {
		l = &log{
			engine: e, name: name, path: e.path(fileName(name)), sessions: map[string]*session{},
			stepLock: make(chan struct{}, 1), watches: map[string]*watcher{},
		}
		e.logs[name] = l
	}
	e.clients++
	s := &session{
		log: l, id: e.process + "." + strconv.FormatUint(e.clients, 36), who: who, notify: notify,
		waiting: map[engine.ID]int64{},
	}
	e.sessions[s.id], l.sessions[s.id] = s, s
	return s, nil
}

// forget removes a session, and its log with the last session.
func (e *Engine) forget(s *session) {
	e.mu.Lock()
	delete(e.sessions, s.id)
	delete(s.log.sessions, s.id)
	last := len(s.log.sessions) == 0
	if last {
		delete(e.logs, s.log.name)
	}
	e.mu.Unlock()
	if last {
		go s.log.close()
	}
}

// close frees the log's resources, most of them after the running step.
func (l *log) close() {
	l.endWatches()
	l.stepLock <- struct{}{}
	defer func() { <-l.stepLock }()
	l.closed = true
	l.closeFile()
	l.endWatches() // the running step may have begun some
	if l.timer != nil {
		l.timer.Stop()
	}
}

func (l *log) endWatches() {
	l.watching.Lock()
	defer l.watching.Unlock()
	for _, w := range l.watches {
		w.stop()
	}
	clear(l.watches)
}

func (e *Engine) session(client string) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[client]
}

func (e *Engine) sessionsOf(l *log) []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(l.sessions))
}

// List implements sema.Engine.
func (e *Engine) List(ctx context.Context) ([]string, error) {
	files, err := os.ReadDir(e.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fail("list", "", err)
	}
	names := []string{}
	for _, f := range files {
		if ctx.Err() != nil {
			return nil, fail("list", "", ctx.Err())
		}
		if m, ok := e.readUnlocked(f.Name()); ok && !e.over(m) {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// readUnlocked reads a log without locking it.
func (e *Engine) readUnlocked(file string) (m image, ok bool) {
	if !strings.HasSuffix(file, logSuffix) {
		return m, false
	}
	info, err := os.Lstat(e.path(file))
	if err != nil || !info.Mode().IsRegular() {
		return m, false
	}
	data, err := os.ReadFile(e.path(file))
	if err != nil {
		return m, false
	}
	m, err = readImage(data)
	return m, err == nil && fileName(m.Name) == file
}

// errNeedsShared says that a directory needs Options.Shared.
var errNeedsShared = errors.New("and its group may use it")

var errNoFile = errors.New("is not a file")

// permanent are the errors of a full disk, of a read-only file system, of missing rights, and of
// something else in a file's place. They do not pass by themselves.
var permanent = []error{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EROFS, syscall.EACCES, syscall.EPERM,
	syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.ENXIO, errNoFile,
}

// fail makes the *engine.Error of a step that changed nothing.
func fail(op, name string, err error) error {
	var whole *engine.Error
	if err == nil || errors.As(err, &whole) {
		return err
	}
	e := &engine.Error{Op: op, Name: name, NotExecuted: true, Err: err}
	switch {
	case errors.Is(err, ledger.ErrForm):
		e.Temporary, e.Hint = true, "bring all programs of this host to one release of sema, or wait until the programs of the other release no longer use the semaphore; their permits count, so delete nothing"
	case errors.Is(err, engine.ErrClosed):
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e.Temporary, e.Busy, e.Hint = true, true, "another process is stopped during a step, or this host is very busy"
		e.Err = fmt.Errorf("the lock was not free in time: %w", err)
	default:
		e.Temporary, e.Hint = !slices.ContainsFunc(permanent, func(l error) bool { return errors.Is(err, l) }), "check that this user can write the directory and its files, and that its disk is not full"
	}
	return e
}
