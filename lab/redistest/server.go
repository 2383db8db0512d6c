// Package redistest starts real Redis servers as children of a test: one
// alone, a master with replica and Sentinel, a cluster; and a proxy that
// breaks the connections between. SEMA_REDIS_SERVER names another program than
// redis-server. A machine without the server fails the test: a silent skip
// would look like success. Only go test -short, which is to need no server, skips
// the tests that would start one.
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
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

// TB is what a fixture needs of the one it is for: a test, a benchmark, or a
// program that keeps its own list of what to clean up.
type TB interface {
	Helper()
	Fatalf(format string, args ...any) // does not return
	Cleanup(func())
	TempDir() string
}

const (
	// startTimeout bounds how long a server may take to answer its first PING.
	startTimeout = time.Minute

	// patience is how long a test's own client waits for an answer: longer than
	// machines stand still.
	patience = time.Minute
)

// Server is one Redis or Valkey child on a loopback port of its own.
type Server struct {
	tb   TB
	path string // of the program
	env  []string
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
func Start(tb TB, args ...string) *Server {
	tb.Helper()
	return StartEnv(tb, nil, args...)
}

// StartEnv is Start with more in the server's environment ("NAME=value").
func StartEnv(tb TB, env []string, args ...string) *Server {
	tb.Helper()
	return start(tb, env, append([]string{"--save", "", "--appendonly", "no"}, args...))
}

func start(tb TB, env, args []string) *Server {
	tb.Helper()
	if t, ok := tb.(testing.TB); ok && testing.Short() {
		t.Skip("needs a server")
	}
	path, err := program()
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	s := &Server{tb: tb, path: path, env: env, args: args, dir: tb.TempDir()}
	// Another process may take the free port before the child binds it.
	for range 5 {
		s.port = FreePort(tb)
		if err = s.launch(); err == nil {
			tb.Cleanup(s.Kill)
			return s
		}
		s.Kill()
		_ = os.Remove(s.conf()) // it may name the port
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
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: patience, WriteTimeout: patience})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// PID is the process id of the server; 0 if it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
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
	if !s.persistent() {
		// A replica writes what it gets from its master there, for one.
		_ = os.RemoveAll(filepath.Join(s.dir, "dump.rdb"))
	}
	if err := s.launch(); err != nil {
		s.tb.Fatalf("redistest: restart: %v", err)
	}
}

// persistent reports whether the server was told to keep its data.
func (s *Server) persistent() bool {
	kept := map[string]string{}
	for i := 1; i < len(s.args); i++ {
		kept[s.args[i-1]] = s.args[i]
	}
	return kept["--appendonly"] == "yes" || kept["--save"] != ""
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
		args = []string{s.conf(), "--sentinel", "--port", strconv.Itoa(s.port)}
		// A Sentinel that is restarted goes on with what it wrote down. Without its
		// own id the others would count it as one more.
		if _, err := os.Stat(s.conf()); err != nil {
			if err := os.WriteFile(s.conf(), []byte(s.args[1]), 0o600); err != nil {
				return err
			}
		}
	}
	cmd := exec.Command(s.path, args...)
	log := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	cmd.Env = append(os.Environ(), s.env...)
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

// conf is where a Sentinel keeps what it knows.
func (s *Server) conf() string { return filepath.Join(s.dir, "sentinel.conf") }

// FreePort finds a port that nobody else is given until the test ends, while the
// server is restarted either. It is below those that systems give to outgoing
// connections: one of these could sit on it meanwhile. A socket for UDP keeps other
// processes' tests off.
func FreePort(tb TB) int {
	tb.Helper()
	var err error
	for range 100 {
		port := 12000 + rand.IntN(20000)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		var mark net.PacketConn
		if mark, err = net.ListenPacket("udp", addr); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			tb.Cleanup(func() { _ = mark.Close() })
			return port
		}
		_ = mark.Close()
	}
	tb.Fatalf("redistest: no free port: %v", err)
	return 0
}
