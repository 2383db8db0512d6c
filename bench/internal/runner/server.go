package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// serverTimeout bounds how long a server may take to answer.
const serverTimeout = 20 * time.Second

// startServer runs a redis-server child that keeps nothing on disk, on a free
// loopback port. It returns its URL, and what ends it.
func startServer(ctx context.Context) (string, func(), error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return "", nil, errors.New("no redis-server on this machine; try: apt-get install redis-server")
	}
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return "", nil, err
	}
	// Another process may take the free port before the child binds it.
	for range 5 {
		var url string
		var stop func()
		if url, stop, err = launch(ctx, dir); err == nil {
			return url, func() { stop(); _ = os.RemoveAll(dir) }, nil
		}
	}
	_ = os.RemoveAll(dir)
	return "", nil, err
}

func launch(ctx context.Context, dir string) (string, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr := l.Addr().(*net.TCPAddr)
	_ = l.Close()
	log := &bytes.Buffer{}
	cmd := exec.Command("redis-server", "--port", strconv.Itoa(addr.Port), "--bind", "127.0.0.1",
		"--dir", dir, "--daemonize", "no", "--save", "", "--appendonly", "no")
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, dieWithParent()
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("redis-server: %w", err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	stop := func() { _ = cmd.Process.Kill(); <-done }

	rdb := redis.NewClient(&redis.Options{Addr: addr.String(), MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	for {
		// Whoever answers must be our child, not a stranger on its port.
		info, err := rdb.InfoMap(ctx, "server").Result()
		if err == nil && info["Server"]["process_id"] == strconv.Itoa(cmd.Process.Pid) {
			return "redis://" + addr.String(), stop, nil
		}
		select {
		case <-done:
			return "", nil, fmt.Errorf("redis-server ended while starting:\n%s", log)
		case <-ctx.Done():
			stop()
			return "", nil, fmt.Errorf("redis-server does not answer: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
