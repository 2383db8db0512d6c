// Package local starts what the examples need, as children of the example: servers
// in temporary directories of their own, which keep nothing, and the example itself
// once more.
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
	// Address is what clients connect to, in the words of the server's clients.
	Address string
	// Dir is the server's own directory. Stop removes it.
	Dir string

	cmd  *exec.Cmd
	log  bytes.Buffer // what it printed
	done chan struct{}
}

// Redis starts a redis-server. Its Address is the path of a socket.
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
	s := &Server{Dir: dir, done: make(chan struct{})}
	if s.cmd, err = prepare(s); err == nil {
		s.cmd.Dir, s.cmd.SysProcAttr, s.cmd.Stdout, s.cmd.Stderr = dir, diesWithUs(), &s.log, &s.log
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := answers(ctx, s)
		if err == nil {
			return s, nil
		}
		select {
		case <-again.C:
			continue
		case <-s.done:
			err = fmt.Errorf("%s has ended: %s", s.cmd.Path, s.log.String())
		case <-ctx.Done():
		}
		s.Stop()
		return nil, err
	}
}

// Stop ends the server and removes what it kept.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(os.Interrupt)
	select {
	case <-s.done:
	case <-time.After(ready / 4):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	_ = os.RemoveAll(s.Dir)
}
