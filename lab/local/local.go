// Package local starts what examples and tests need, as children of the program:
// servers in temporary directories of their own, which keep nothing, and the program
// itself once more. An example shows all of it with one command.
package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// ready bounds how long a server may take to answer for the first time.
const ready = time.Minute

// Server is a child that serves until Stop.
type Server struct {
	// Address is what clients connect to: of PostgreSQL a URL, of Redis the path
	// of a socket.
	Address string
	// Dir is the server's own directory. Stop removes it.
	Dir string

	cmd     *exec.Cmd
	answers func(context.Context, *Server) error
	log     bytes.Buffer  // what it printed
	done    chan struct{} // closed when it has ended
}

// Redis starts a redis-server.
func Redis(ctx context.Context) (*Server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("no redis-server on this machine; try: apt-get install redis-server")
	}
	return Start(ctx, func(s *Server) (*exec.Cmd, error) {
		s.Address = filepath.Join(s.Dir, "redis.sock")
		return exec.Command(path, "--port", "0", "--unixsocket", s.Address, "--save", "", "--dir", s.Dir), nil
	}, func(ctx context.Context, s *Server) error {
		rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Address})
		defer func() { _ = rdb.Close() }()
		return rdb.Ping(ctx).Err()
	})
}

// Postgres starts a PostgreSQL server with an empty database, and arguments beside those
// that let it serve.
func Postgres(ctx context.Context, args ...string) (*Server, error) {
	initdb, err1 := find("initdb")
	postgres, err2 := find("postgres")
	isReady, err3 := find("pg_isready")
	if errors.Join(err1, err2, err3) != nil {
		return nil, errors.New("no PostgreSQL on this machine; try: apt-get install postgresql")
	}
	return Start(ctx, func(s *Server) (*exec.Cmd, error) {
		if err := giveAway(s.Dir); err != nil {
			return nil, err
		}
		data := filepath.Join(s.Dir, "data")
		init := exec.CommandContext(ctx, initdb, "-D", data, "-U", "sema", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
		init.SysProcAttr = unprivileged()
		init.Dir = s.Dir
		if out, err := init.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("initdb: %w\n%s", err, out)
		}
		s.Address = "postgres://sema@/postgres?host=" + s.Dir
		cmd := exec.Command(postgres, append([]string{"-D", data, "-k", s.Dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"}, args...)...)
		cmd.SysProcAttr = init.SysProcAttr
		return cmd, nil
	}, func(ctx context.Context, s *Server) error {
		return exec.CommandContext(ctx, isReady, "-q", "-h", s.Dir, "-U", "sema").Run()
	})
}

// find looks for a program of PostgreSQL, which Debian has outside of the path.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(all) == 0 {
		return "", exec.ErrNotFound
	}
	return all[len(all)-1], nil
}

// Start starts the command that prepare makes, and returns when answers has no error
// any more. Prepare finds the server's directory in s, and sets its Address.
func Start(ctx context.Context, prepare func(s *Server) (*exec.Cmd, error), answers func(context.Context, *Server) error) (*Server, error) {
	dir, err := os.MkdirTemp("", "sema")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, answers: answers}
	if s.cmd, err = prepare(s); err == nil {
		s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, &s.log, &s.log
		if s.cmd.SysProcAttr == nil {
			s.cmd.SysProcAttr = diesWithUs()
		}
		err = s.launch(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// launch starts the command, and returns when it answers. If it does not, it has ended.
func (s *Server) launch(ctx context.Context) error {
	if err := s.cmd.Start(); err != nil {
		return err
	}
	cmd, done := s.cmd, make(chan struct{})
	s.done = done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := s.answers(ctx, s)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
			continue
		case <-done:
			return fmt.Errorf("%s has ended: %s", cmd.Path, s.log.String())
		case <-ctx.Done():
		}
		s.end()
		return err
	}
}

// PID is the server's first process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Restart starts the server again on what it kept, when it has ended or is about to.
func (s *Server) Restart(ctx context.Context) error {
	<-s.done
	before := s.cmd
	s.cmd = exec.Command(before.Path, before.Args[1:]...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr, s.cmd.SysProcAttr = before.Dir, before.Stdout, before.Stderr, before.SysProcAttr
	return s.launch(ctx)
}

// Stop ends the server and removes what it kept.
func (s *Server) Stop() {
	s.end()
	_ = os.RemoveAll(s.Dir)
}

func (s *Server) end() {
	_ = s.cmd.Process.Signal(os.Interrupt)
	select {
	case <-s.done:
	case <-time.After(ready / 4):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}
