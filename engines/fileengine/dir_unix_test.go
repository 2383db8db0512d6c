//go:build unix

package fileengine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

func mode(tb testing.TB, path string) fs.FileMode {
	tb.Helper()
	info, err := os.Lstat(path)
	expect.OK(tb, err)
	return info.Mode()
}

func TestRightsOfDirectoryAndFiles(t *testing.T) {
	top := t.TempDir()
	for umask, want := range map[int]struct {
		options *Options
		dir     fs.FileMode
		files   fs.FileMode
	}{
		0:     {nil, fs.ModeDir | 0o700, 0o600},
		0o077: {&Options{Shared: true}, fs.ModeDir | fs.ModeSetgid | 0o770, 0o660},
	} {
		dir := filepath.Join(top, strconv.Itoa(umask), "b")
		old := syscall.Umask(umask)
		defer syscall.Umask(old)
		e, err := New(dir, want.options)
		expect.OK(t, err)
		defer e.Close()
		u := openUser(t, e, "x", 1)
		for range 200 { // until the log has been rewritten
			expect.OK(t, u.release(u.take(t)))
		}
		if got := mode(t, dir); got != want.dir {
			t.Errorf("directory: %v", got)
		}
		files, err := os.ReadDir(dir)
		expect.OK(t, err)
		for _, f := range files {
			if got := mode(t, filepath.Join(dir, f.Name())); got.Perm() != want.files {
				t.Errorf("%s: %v", f.Name(), got)
			}
		}
	}
}

// A shared directory appears with the rights of its group: no process finds it while only one user may use it.
func TestASharedDirectoryIsNeverPrivate(t *testing.T) {
	above, seen, ended := t.TempDir(), 0, make(chan struct{})
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	go func() {
		defer close(ended)
		for i := range 300 {
			e, err := New(filepath.Join(above, strconv.Itoa(i)), &Options{Shared: true})
			if err != nil {
				t.Error(err)
				return
			}
			_ = e.Close()
		}
	}()
	for i := 0; i < 300; {
		info, err := os.Lstat(filepath.Join(above, strconv.Itoa(i)))
		select {
		case <-ended:
			i++
		default:
		}
		if err != nil {
			continue
		}
		if seen++; info.Mode() != fs.ModeDir|fs.ModeSetgid|0o770 {
			t.Fatalf("%s: %v", info.Name(), info.Mode())
		}
		i++
	}
	if seen == 0 {
		t.Error("none was seen")
	}
}

func TestUnsafeDirectoriesAreRefused(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	expect.OK(t, os.Mkdir(at("target"), 0o700))
	expect.OK(t, os.Symlink(at("target"), at("link")))
	expect.OK(t, os.Symlink(at("nowhere"), at("dangling")))
	expect.OK(t, os.WriteFile(at("file"), nil, 0o600))
	expect.OK(t, os.Mkdir(at("open"), 0o700))
	expect.OK(t, os.Chmod(at("open"), 0o777))
	expect.OK(t, os.Mkdir(at("tmp"), 0o700))
	expect.OK(t, os.Chmod(at("tmp"), 0o777|fs.ModeSticky))
	for _, dir := range []string{"link", "dangling", "file", "open", "open/below", "file/below"} {
		_, err := New(at(dir), nil)
		var e *engine.Error
		if err == nil {
			t.Errorf("%s was accepted", dir)
		} else if !errors.As(err, &e) || !e.NotExecuted || e.Hint == "" {
			t.Errorf("%s: %#v", dir, err)
		}
	}
	for _, made := range []string{"nowhere", "open/below"} {
		if _, err := os.Lstat(at(made)); err == nil {
			t.Errorf("%s was created", made)
		}
	}
	if left, _ := os.ReadDir(at("target")); len(left) != 0 {
		t.Errorf("the link was followed: %v", left)
	}
	if _, err := New(at("tmp/sema-1"), nil); err != nil {
		t.Errorf("below a sticky directory: %v", err)
	}
	if os.Getuid() == 0 { // directories of other users
		expect.OK(t, os.Mkdir(at("tmp/theirs"), 0o700))
		expect.OK(t, os.Chown(at("tmp/theirs"), 12345, 12345))
		for _, dir := range []string{"tmp/theirs", "tmp/theirs/below"} {
			if _, err := New(at(dir), nil); err == nil {
				t.Errorf("%s was accepted", dir)
			}
		}
		group := at("tmp/group")
		expect.OK(t, os.Mkdir(group, 0o700))
		expect.OK(t, os.Chown(group, 12345, 0))
		expect.OK(t, os.Chmod(group, 0o770|fs.ModeSetgid))
		var e *engine.Error
		if _, err := New(group, nil); !errors.As(err, &e) || !strings.Contains(e.Hint, "file://"+group+"?shared") {
			t.Errorf("a directory for a group's use: %v", err)
		}
	}
}

// Errors that do not pass by themselves are not temporary.
func TestPermanentErrors(t *testing.T) {
	for errno, temporary := range map[syscall.Errno]bool{
		syscall.ENOSPC: false, syscall.EDQUOT: false, syscall.EFBIG: false, syscall.EROFS: false, syscall.EACCES: false, syscall.EPERM: false,
		syscall.ENOTDIR: false, syscall.EISDIR: false, syscall.ELOOP: false, syscall.ENAMETOOLONG: false, syscall.ENXIO: false,
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOENT: true, syscall.EIO: true,
	} {
		var e *engine.Error
		if err := fail("step", "x", &fs.PathError{Op: "write", Path: "x.log", Err: errno}); !errors.As(err, &e) || e.Temporary != temporary || e.Hint == "" {
			t.Errorf("%v: %#v", errno, err)
		}
	}
}

// Files that cannot be used fail an ask at once. It does not wait until they change.
func TestUnusableFiles(t *testing.T) {
	prey := filepath.Join(t.TempDir(), "prey")
	expect.OK(t, os.WriteFile(prey, []byte("mine"), 0o600))
	for name, spoil := range map[string]func(dir string) error{
		"a link":      func(dir string) error { return os.Symlink(prey, logOf(dir)) },
		"a directory": func(dir string) error { return os.Mkdir(logOf(dir), 0o700) },
		"a pipe":      func(dir string) error { return syscall.Mkfifo(logOf(dir), 0o600) },
		"a socket": func(dir string) error {
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer syscall.Close(fd)
			t.Chdir(dir) // a socket's path is short
			return syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Base(logOf(dir))})
		},
		"no directory": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) },
	} {
		dir := t.TempDir()
		u := openUser(t, openEngine(t, dir), "x", 1)
		expect.OK(t, spoil(dir))
		_, err := u.call(u.ask(true))
		var e *engine.Error
		if !errors.As(err, &e) || e.Temporary || !e.NotExecuted || e.Hint == "" {
			t.Errorf("%s: %#v", name, err)
		}
	}
	if got, _ := os.ReadFile(prey); string(got) != "mine" {
		t.Errorf("written to through a link: %q", got)
	}
}

// systemd-tmpfiles keeps a log that has to last, by its sticky bit.
func TestALogThatHasToLastIsSticky(t *testing.T) {
	dir := t.TempDir()
	u := openUser(t, openEngine(t, dir), "x", 1)
	long := u.ask(false)
	long.Detached, long.Lease = true, 30*24*time.Hour
	for _, c := range []struct {
		request protocol.Request
		lasts   bool
	}{
		{protocol.Request{Kind: protocol.SetLimit, Limit: 1}, false},
		{protocol.Request{Kind: protocol.SetLimit, Limit: 1, Pin: true}, true},
		{protocol.Request{Kind: protocol.UnsetLimit}, false},
		{protocol.Request{Kind: protocol.Pause}, true},
		{protocol.Request{Kind: protocol.Unpause}, false},
		{long, true},
	} {
		u.status(t, c.request)
		for range 200 { // until the log has been rewritten
			u.status(t, protocol.Request{Kind: protocol.SetLimit, Limit: 1})
		}
		if got := mode(t, logOf(dir)); (got&fs.ModeSticky != 0) != c.lasts || got.Perm() != 0o600 {
			t.Errorf("%v: mode %v", c.request.Kind, got)
		}
	}
}

// The default directory is the same for all sessions of a user, whatever their environment.
func TestDefaultDirDoesNotDependOnTheSession(t *testing.T) {
	dir := DefaultDir()
	for _, name := range []string{"XDG_RUNTIME_DIR", "TMPDIR", "HOME"} {
		t.Setenv(name, t.TempDir())
	}
	if got := DefaultDir(); got != dir {
		t.Errorf("%s, and %s in another session", dir, got)
	}
}
