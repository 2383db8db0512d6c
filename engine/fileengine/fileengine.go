// Package fileengine keeps semaphores in a directory, for the processes of one
// host and one user; nothing has to run.
//
//	sem/NAME      one small JSON file for each semaphore, replaced atomically
//	locks/NN      file locks under which the files are changed
//	proc/PROCESS  locked by each process while it lives
//	inbox/CLIENT  touched to tell a waiting client to look
//
// The kernel drops a process's lock when it dies, however it dies: its permits
// come back at once, without waiting for their leases. On Linux a waiting
// process is woken through inotify, by the release that hands it a permit or by
// the death of another process. Elsewhere, and where inotify has no instance
// left, it looks four times a second.
//
// The directory must be on a local file system. Leases are judged by the
// system's clock: one that jumps forward ends leases early. A process that is
// stopped (SIGSTOP) in the middle of a step, some hundred microseconds long,
// keeps the others from using a sixteenth of all names.
package fileengine

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"sema"
	"sema/internal/ledger"
)

// Engine keeps semaphores in a directory. Create it with New and share it.
type Engine struct {
	dir     string
	process string // this engine's name in proc; clients' ids begin with it
	locks   [lockShards]lock

	mu       sync.Mutex
	life     *flock.Flock // held while the engine is open; nil before it is needed
	seen     time.Time    // when its file was last known to be there
	clients  uint64
	sessions map[string]*session
	watch    *watcher // nil until somebody waits
	closed   bool
}

// lifeCheck is how often a process that is in use sees to its file in proc.
const lifeCheck = 5 * time.Second

// DefaultDir is where New("") keeps semaphores: $XDG_RUNTIME_DIR/sema, or else
// a directory of the user's under the directory for temporary files.
func DefaultDir() string {
	if run := os.Getenv("XDG_RUNTIME_DIR"); run != "" {
		return filepath.Join(run, "sema")
	}
	return filepath.Join(os.TempDir(), "sema-"+strconv.Itoa(os.Getuid()))
}

// New makes an engine on a directory, which is created if it does not exist,
// for this user only. "" means DefaultDir.
func New(dir string) (*Engine, error) {
	private := dir == ""
	if private {
		dir = DefaultDir()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fail("open", "", err)
	}
	for _, sub := range []string{"sem", "locks", "proc", "inbox"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, &sema.EngineError{Op: "open", NotExecuted: true, Err: err, Hint: "choose a directory that this user can write: file:///path"}
		}
	}
	if private {
		// Under a shared temporary directory somebody else may have been first.
		if err := checkOwner(dir); err != nil {
			return nil, &sema.EngineError{Op: "open", NotExecuted: true, Err: err, Hint: "choose another directory: file:///path"}
		}
	}
	random := make([]byte, 5)
	_, _ = rand.Read(random) // never fails
	e := &Engine{
		dir: dir, process: "f" + strings.ToLower(base32.StdEncoding.EncodeToString(random)),
		sessions: map[string]*session{},
	}
	for i := range e.locks {
		e.locks[i] = newLock(filepath.Join(dir, "locks", fmt.Sprintf("%02d", i)))
	}
	return e, nil
}

// Dir is the directory.
func (e *Engine) Dir() string { return e.dir }

// Open implements sema.Engine.
func (e *Engine) Open(name string, client sema.Client, wake func(sema.Wake)) (sema.Session, error) {
	if err := sema.ValidateName(name); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, sema.ErrClosed
	}
	e.clients++
	s := &session{
		engine: e, name: name, file: filepath.Join(e.dir, "sem", fileName(name)), lock: &e.locks[shard(name)],
		id: e.process + "." + strconv.FormatUint(e.clients, 36), by: client, wake: wake,
	}
	e.sessions[s.id] = s
	return s, nil
}

// List implements sema.Engine.
func (e *Engine) List(ctx context.Context) ([]string, error) {
	files, err := os.ReadDir(filepath.Join(e.dir, "sem"))
	if err != nil {
		return nil, fail("list", "", err)
	}
	names := []string{}
	for _, f := range files {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if strings.HasPrefix(f.Name(), ".") {
			continue // about to replace another
		}
		stored, err := read(filepath.Join(e.dir, "sem", f.Name()))
		if err != nil {
			return nil, fail("list", "", err)
		}
		if stored == nil {
			continue // removed this moment
		}
		if !ledger.Load(stored.Snapshot).Over(now()) {
			names = append(names, stored.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Close implements sema.Engine. What its sessions still hold is lost and, unless
// detached, comes back to the others at once.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	open := slices.Collect(maps.Values(e.sessions))
	e.mu.Unlock()
	// Told while this process still counts as alive: before anybody else can
	// have what its sessions hold.
	for _, s := range open {
		s.wake(sema.Wake{Closed: true})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watch != nil {
		e.watch.close()
	}
	for id := range e.sessions {
		_ = os.Remove(e.inbox(id))
	}
	if e.life != nil {
		_ = os.Remove(e.proc(e.process))
		return e.life.Close()
	}
	return nil
}

// live makes this process known as alive, before it holds or waits for
// anything.
func (e *Engine) live() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return sema.ErrClosed
	}
	if e.life != nil && time.Since(e.seen) < lifeCheck {
		return nil
	}
	if e.life != nil {
		// A cleaner of temporary files may take what is old for abandoned.
		now := time.Now()
		if os.Chtimes(e.proc(e.process), now, now) == nil {
			e.seen = now
			return nil
		}
		_ = e.life.Close()
		e.life = nil
	}
	// Open for writing, so that the end of this process is an event to inotify;
	// and locked before it has its name, so that nobody takes it for dead.
	hidden, path := filepath.Join(e.dir, "proc", "."+e.process), e.proc(e.process)
	life := flock.New(hidden, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	ok, err := life.TryLock()
	if err == nil && !ok {
		err = fmt.Errorf("%s is locked by somebody else", hidden)
	}
	if err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		return err
	}
	e.life, e.seen = life, time.Now()
	e.sweep()
	return nil
}

// sweep removes what dead processes left, a little at a time.
func (e *Engine) sweep() {
	files, _ := os.ReadDir(filepath.Join(e.dir, "proc"))
	for _, f := range files[:min(len(files), 50)] {
		if !strings.HasPrefix(f.Name(), ".") {
			e.alive(f.Name())
		}
	}
}

// alive reports whether the process of that name lives, and removes its files
// if it does not: a process that has none is dead as well.
func (e *Engine) alive(process string) bool {
	if process == e.process {
		return true
	}
	path := e.proc(process)
	life := flock.New(path, flock.SetFlag(os.O_RDONLY))
	got, err := life.TryRLock()
	if err == nil && !got {
		return true
	}
	if got {
		_ = os.Remove(path)
		for _, left := range []string{e.inbox(process + ".*"), filepath.Join(e.dir, "sem", "."+process+"-*")} {
			files, _ := filepath.Glob(left)
			for _, f := range files {
				_ = os.Remove(f)
			}
		}
		_ = life.Close()
		return false
	}
	return !os.IsNotExist(err) // what cannot be judged is not declared dead
}

func (e *Engine) proc(process string) string { return filepath.Join(e.dir, "proc", process) }

func (e *Engine) inbox(client string) string { return filepath.Join(e.dir, "inbox", client) }

// listen has the session woken when it is told something or a process died.
func (e *Engine) listen(s *session) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return sema.ErrClosed
	}
	if e.watch == nil {
		e.watch = newWatcher(filepath.Join(e.dir, "proc"), e.wakeAll)
	}
	f, err := os.OpenFile(e.inbox(s.id), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	_ = f.Close()
	return e.watch.add(e.inbox(s.id), func() { s.wake(sema.Wake{Ask: true}) })
}

// wakeAll has every session look: some process died.
func (e *Engine) wakeAll() {
	e.mu.Lock()
	sessions := make([]*session, 0, len(e.sessions))
	for _, s := range e.sessions {
		sessions = append(sessions, s)
	}
	e.mu.Unlock()
	for _, s := range sessions {
		s.wake(sema.Wake{Ask: true})
	}
}

// deliver passes on the news of a step.
func (e *Engine) deliver(news map[string]*sema.Wake) {
	for client, w := range news {
		e.mu.Lock()
		s := e.sessions[client]
		e.mu.Unlock()
		if s != nil {
			s.wake(*w)
			continue
		}
		if f, err := os.OpenFile(e.inbox(client), os.O_WRONLY, 0); err == nil {
			_ = f.Close() // the touch is the message
		}
	}
}

func now() int64 { return time.Now().UnixMicro() }
