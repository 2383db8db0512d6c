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
	"sync"
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

	answers func(context.Context, *Server) error
	log     bytes.Buffer // what it printed

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
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

// Start starts the command that prepare makes, and returns when answers has no error
// any more. Prepare finds the server's directory in s, and sets its Address.
func Start(ctx context.Context, prepare func(s *Server) (*exec.Cmd, error), answers func(context.Context, *Server) error) (*Server, error) {
	dir, err := os.MkdirTemp("", "sema")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, answers: answers}
	cmd, err := prepare(s)
	if err == nil {
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &s.log, &s.log
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = diesWithUs()
		}
		err = s.launch(ctx, cmd)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// launch starts the command, and returns when it answers. If it does not, it has ended.
func (s *Server) launch(ctx context.Context, cmd *exec.Cmd) error {
	s.mu.Lock()
	err := cmd.Start()
	done := make(chan struct{})
	if err == nil {
		s.cmd, s.done = cmd, done
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
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
		s.End()
		return err
	}
}

// PID is the server's first process.
func (s *Server) PID() int {
	cmd, _ := s.running()
	return cmd.Process.Pid
}

func (s *Server) running() (*exec.Cmd, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd, s.done
}

// Restart starts the server again on what it kept, when it has ended or is about to.
func (s *Server) Restart(ctx context.Context) error {
	before, done := s.running()
	<-done
	cmd := exec.Command(before.Path, before.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = before.Dir, before.Stdout, before.Stderr, before.SysProcAttr
	return s.launch(ctx, cmd)
}

// Keep starts the server again whenever it ends, until ctx does: as what watches over services would. It says when the
// server has ended and when it serves again; serves may be nil.
func (s *Server) Keep(ctx context.Context, serves func(bool)) {
	tell := func(does bool) {
		if serves != nil {
			serves(does)
		}
	}
	for {
		_, done := s.running()
		select {
		case <-ctx.Done():
			return
		case <-done:
			tell(false)
			err := errors.New("not yet")
			for err != nil && ctx.Err() == nil {
				err = s.Restart(ctx) // again, if it has ended again
			}
			tell(true)
		}
	}
}

// Stop ends the server and removes what it kept.
func (s *Server) Stop() {
	s.End()
	_ = os.RemoveAll(s.Dir)
}

// End ends the server, which keeps what it has until Stop. Restart starts it again.
func (s *Server) End() {
	cmd, done := s.running()
	_ = cmd.Process.Signal(os.Interrupt)
	select {
	case <-done:
	case <-time.After(ready / 4):
		_ = cmd.Process.Kill()
		<-done
	}
}
