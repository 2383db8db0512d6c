// Package redistest starts real Redis servers as children of a test: one
// alone, a master with replica and Sentinel, a cluster; and a proxy that
// breaks the connections between. SEMA_REDIS_SERVER names another program than
// redis-server. A machine without the server fails the test: a silent skip
// would look like success.
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout bounds how long a server may take to answer its first PING.
const startTimeout = 20 * time.Second

// Server is one Redis or Valkey child on a loopback port of its own.
type Server struct {
	tb   testing.TB
	path string // of the program
	args []string
	dir  string
	port int

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the current child has been reaped
	log  *bytes.Buffer // what the current child printed
}

// Start runs a standalone server that keeps nothing on disk. Each arg is a
// further word of its command line ("--maxmemory", "1mb"). The server is
// killed when the test ends.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return start(tb, append([]string{"--save", "", "--appendonly", "no"}, args...))
}

func start(tb testing.TB, args []string) *Server {
	tb.Helper()
	path, err := program()
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	s := &Server{tb: tb, path: path, args: args, dir: tb.TempDir()}
	// Another process may take the free port before the child binds it.
	for range 5 {
		s.port = freePort(tb)
		if err = s.launch(); err == nil {
			tb.Cleanup(s.Kill)
			return s
		}
		s.Kill()
	}
	tb.Fatalf("redistest: %s does not start: %v", path, err)
	return nil
}

// Addr is host:port of the server; it stays the same across Restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server's redis:// address.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Port is the TCP port of the server.
func (s *Server) Port() int { return s.port }

// Dir is the server's working directory, where an append-only file would lie.
func (s *Server) Dir() string { return s.dir }

// Client connects to the server; it is closed when the test ends.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Kill ends the server at once (SIGKILL) and waits until it is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
	s.cmd = nil
}

// Restart kills the server if it runs and starts it again on the same port:
// empty, unless it was started with persistence.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		s.tb.Fatalf("redistest: restart: %v", err)
	}
}

// launch starts the child and waits until it answers.
func (s *Server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--daemonize", "no", "--enable-debug-command", "yes",
	}, s.args...)
	if len(s.args) > 0 && s.args[0] == sentinelMark {
		args = []string{filepath.Join(s.dir, "sentinel.conf"), "--sentinel", "--port", strconv.Itoa(s.port)}
		if err := os.WriteFile(args[0], []byte(s.args[1]), 0o600); err != nil {
			return err
		}
	}
	cmd := exec.Command(s.path, args...)
	log := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	s.cmd, s.done, s.log = cmd, done, log

	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		// Whoever answers must be our child, not a stranger on its port.
		info, err := c.InfoMap(ctx, "server").Result()
		if err == nil && info["Server"]["process_id"] == strconv.Itoa(cmd.Process.Pid) {
			return nil
		}
		select {
		case <-done:
			s.cmd = nil
			return fmt.Errorf("%s ended while starting:\n%s", s.path, log.String())
		case <-ctx.Done():
			return fmt.Errorf("no answer from %s within %v", s.Addr(), startTimeout)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// FreePort is a loopback port that nobody listened on a moment ago.
func FreePort(tb testing.TB) int {
	tb.Helper()
	return freePort(tb)
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
