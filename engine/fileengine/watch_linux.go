package fileengine

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"
)

// watcher is an inotify instance: the kernel tells when a client's inbox is
// touched, and when a file in proc that was open for writing is closed, which
// is when its process ended. Without an instance or a watch left it polls.
type watcher struct {
	*poller
	died func()

	mu     sync.Mutex
	file   *os.File
	fd     int
	procWD int32
	paths  map[string]int32
	calls  map[int32]func()
}

func newWatcher(proc string, died func()) *watcher {
	w := &watcher{died: died, paths: map[string]int32{}, calls: map[int32]func(){}}
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		w.poller = newPoller(died)
		return w
	}
	wd, err := syscall.InotifyAddWatch(fd, proc, syscall.IN_CLOSE_WRITE)
	if err != nil {
		_ = syscall.Close(fd)
		w.poller = newPoller(died)
		return w
	}
	w.fd, w.procWD = fd, int32(wd)
	w.file = os.NewFile(uintptr(fd), "inotify") // non-blocking: Close ends Read
	go w.read(w.file)
	return w
}

func (w *watcher) add(path string, touched func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil // polling tells everybody
	}
	wd, err := syscall.InotifyAddWatch(w.fd, path, syscall.IN_CLOSE_WRITE)
	if err == syscall.ENOSPC || err == syscall.ENOMEM { // no watch left for this user
		if w.poller == nil {
			w.poller = newPoller(w.died)
		}
		return nil
	}
	if err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	w.paths[path], w.calls[int32(wd)] = int32(wd), touched
	return nil
}

func (w *watcher) remove(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wd, ok := w.paths[path]; ok && w.file != nil {
		_, _ = syscall.InotifyRmWatch(w.fd, uint32(wd))
		delete(w.paths, path)
		delete(w.calls, wd)
	}
}

func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.poller != nil {
		w.poller.close()
	}
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
}

// read passes on events until the watcher is closed.
func (w *watcher) read(f *os.File) {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return
		}
		died := false
		var touched []func()
		w.mu.Lock()
		for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; {
			wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			nameLen := binary.NativeEndian.Uint32(b[12:])
			b = b[syscall.SizeofInotifyEvent+nameLen:]
			switch {
			case mask&syscall.IN_Q_OVERFLOW != 0, wd == w.procWD:
				died = true
			case w.calls[wd] != nil:
				touched = append(touched, w.calls[wd])
			}
		}
		w.mu.Unlock()
		for _, call := range touched {
			call()
		}
		if died {
			w.died()
		}
	}
}
