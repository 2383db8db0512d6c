package fileengine

import (
	"errors"
	"os"
	"time"
)

// pollEvery is the polling interval, because there are no named pipes.
const pollEvery = 250 * time.Millisecond

// inbox is a file that a process keeps locked while it lives. It carries no messages:
// waiting processes poll.
type inbox struct {
	path string
	file *os.File
	done chan struct{}
}

func newInbox(path string, mode os.FileMode) (*inbox, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, mode)
	if err != nil {
		return nil, err
	}
	if _, err := lockFile(f, false); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &inbox{path: path, file: f, done: make(chan struct{})}, nil
}

func (in *inbox) read([]byte) (int, error) {
	<-in.done
	return 0, os.ErrClosed
}

func (in *inbox) named() bool { return true } // an open file cannot be removed

func (in *inbox) openReader() (*os.File, error) { return nil, errors.ErrUnsupported }

func (in *inbox) close() {
	close(in.done)
	_ = in.file.Close()
}

// outbox sends nothing on this system.
type outbox struct{}

// openOutbox reports whether a process is alive: whether its file is locked.
func openOutbox(path string) (out outbox, alive bool) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return out, !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	free, err := lockFile(f, false)
	if free {
		unlockFile(f)
	}
	return out, err != nil || !free
}

func (outbox) send([]byte) {}
func (outbox) close()      {}

// watch calls died when a process has ended.
func watch(path string, died func()) (stop func(), alive bool) {
	if _, alive := openOutbox(path); !alive {
		return nil, false
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(pollEvery):
			}
			if _, alive := openOutbox(path); !alive {
				died()
				return
			}
		}
	}()
	return func() { close(done) }, true
}
