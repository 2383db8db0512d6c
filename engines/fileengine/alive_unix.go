//go:build unix

package fileengine

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// pollEvery is the polling interval on systems without named pipes. 0: no polling.
const pollEvery = 0

// inbox is the named pipe of a living process. A write to it wakes the process. The
// process counts as alive while the pipe is open for reading in any process.
type inbox struct {
	path string
	file *os.File
}

func newInbox(path string, mode os.FileMode) (*inbox, error) {
	if err := unix.Mkfifo(path, uint32(mode)); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	// Open for writing as well: a pipe without a writer is at its end.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|noFollow, 0)
	if err == nil && mode&0o070 != 0 {
		err = os.Chmod(path, mode) // regardless of the umask
	}
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return &inbox{path: path, file: f}, nil
}

// read waits for messages.
func (in *inbox) read(b []byte) (int, error) { return in.file.Read(b) }

// named reports whether the path still names this pipe.
func (in *inbox) named() bool {
	_, is := fileAt(in.path, in.file)
	return is
}

// openReader opens the pipe for reading, for another process.
func (in *inbox) openReader() (*os.File, error) {
	return os.OpenFile(in.path, os.O_RDONLY|unix.O_NONBLOCK|noFollow, 0)
}

func (in *inbox) close() { _ = in.file.Close() }

// outbox is the writing end of another process's pipe.
type outbox struct{ fd int }

// openOutbox opens the pipe of a process. alive is false if the pipe is missing or has no
// reader. After any other error it is true.
func openOutbox(path string) (out outbox, alive bool) {
	for {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|noFollow, 0)
		switch {
		case err == nil:
			return outbox{fd}, true
		case errors.Is(err, unix.EINTR):
		default:
			return outbox{-1}, !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENOENT)
		}
	}
}

// send writes a message in one piece. If the pipe is full the message is lost: the reader
// finds the pipe full and looks at all logs.
func (out outbox) send(b []byte) {
	if out.fd >= 0 {
		_, _ = unix.Write(out.fd, b)
	}
}

func (out outbox) close() {
	if out.fd >= 0 {
		_ = unix.Close(out.fd)
	}
}

// watch calls died from another goroutine when the last reader of a pipe closes it, unless
// stop was called. alive is false if there is no reader now. With too many open files the
// pipe cannot be watched, and stop is nil.
func watch(path string, died func()) (stop func(), alive bool) {
	out, alive := openOutbox(path)
	if !alive || out.fd < 0 {
		return nil, alive
	}
	f := os.NewFile(uintptr(out.fd), path)
	conn, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, true
	}
	go func() {
		// The kernel reports the end of the last reader as an error of the writing end. Go
		// waits for that error as it waits for space in the pipe.
		err := conn.Write(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd)}}
			_, err := unix.Poll(p, 0)
			return err == nil && p[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
		})
		_ = f.Close()
		if err == nil {
			died()
		}
	}()
	return func() { _ = f.Close() }, true
}
