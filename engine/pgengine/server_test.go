//go:build unix

package pgengine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"sema/engine/pgengine"
	"sema/lab/expect"
)

// server is a PostgreSQL of a test's own, on a socket in a directory of its own.
type server struct {
	tb   testing.TB
	dir  string
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
	over chan struct{}
}

// startServer starts one with the table in it.
func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sema")
	expect.OK(tb, err)
	s := &server{tb: tb, dir: dir, args: args}
	tb.Cleanup(func() {
		s.kill()
		_ = os.RemoveAll(dir)
	})
	if c := credential(); c != nil {
		expect.OK(tb, os.Chown(dir, int(c.Uid), int(c.Gid)))
	}
	init := exec.Command(program(tb, "initdb"), "-D", s.data(), "-U", "sema", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	init.Dir, init.SysProcAttr = dir, &syscall.SysProcAttr{Credential: credential()}
	if out, err := init.CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, out)
	}
	s.start()
	c := s.connect()
	defer func() { _ = c.Close(context.Background()) }()
	expect.OK(tb, pgengine.Migrate(expect.Within(tb), c, ""))
	return s
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }
func (s *server) url() string  { return "postgres://sema@/postgres?host=" + s.dir }

// start starts it, also after a kill, and returns when it answers.
func (s *server) start() {
	s.tb.Helper()
	args := append([]string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=600"}, s.args...)
	expect.Until(s.tb, "a server that serves", func() bool {
		s.cmd = exec.Command(program(s.tb, "postgres"), args...)
		s.cmd.Dir, s.cmd.SysProcAttr = s.dir, dieWithTests(credential())
		s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
		expect.OK(s.tb, s.cmd.Start())
		over := make(chan struct{})
		s.over = over
		go func(c *exec.Cmd) {
			_ = c.Wait()
			close(over)
		}(s.cmd)
		answers := false
		expect.Until(s.tb, "a server that answers, or has ended", func() bool {
			select {
			case <-over:
				return true
			default:
			}
			c, err := pgx.Connect(expect.Within(s.tb), s.url())
			if answers = err == nil; answers {
				_ = c.Close(context.Background())
			}
			return answers
		})
		return answers // what the one before left may still be there
	})
}

// processes lists the server's, the first one first.
func (s *server) processes() []int {
	pids := []int{s.cmd.Process.Pid}
	out, _ := exec.Command("pgrep", "-P", strconv.Itoa(pids[0])).Output() // it fails if there are none
	for _, word := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(word)
		expect.OK(s.tb, err)
		pids = append(pids, pid)
	}
	return pids
}

func (s *server) signal(sig syscall.Signal) {
	for _, pid := range s.processes() {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			s.tb.Errorf("signal to %d: %v", pid, err)
		}
	}
}

// kill ends all of its processes at once, by kill -9.
func (s *server) kill() {
	select {
	case <-s.over:
		return
	default:
	}
	s.signal(syscall.SIGKILL)
	<-s.over
}

func (s *server) connect() *pgx.Conn {
	s.tb.Helper()
	c, err := pgx.Connect(expect.Within(s.tb), s.url())
	expect.OK(s.tb, err)
	return c
}

// credential is of somebody else if the tests run as root, which PostgreSQL refuses.
func credential() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// program finds one of PostgreSQL's, which Debian has outside of the path.
func program(tb testing.TB, name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(all) == 0 {
		tb.Fatal(fmt.Errorf("no %s of PostgreSQL on this machine; try: apt-get install postgresql", name))
	}
	return all[len(all)-1]
}
