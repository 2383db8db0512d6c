package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"sema/internal/fixture/child"
)

// behindServer is the contestant that reaches Redis through "sema serve".
const behindServer = "sema-serve"

// between is a process between a contestant and Redis, once for a run.
type between struct {
	url  string
	err  error // why there is none
	stop func()
}

// between is the process that a contestant goes through; nil if it goes through none.
func (r *run) between(ctx context.Context, contestant string) *between {
	if b := r.betweens[contestant]; b != nil {
		return b
	}
	b := &between{}
	switch contestant {
	case behindServer:
		b.url, b.stop, b.err = serve(ctx, r.url)
	case relayed:
		b.url, b.stop, b.err = startRelay(ctx, r.url)
	default:
		return nil
	}
	if r.betweens == nil {
		r.betweens = map[string]*between{}
	}
	r.betweens[contestant] = b
	return b
}

func (r *run) endBetweens() {
	for _, b := range r.betweens {
		if b.err == nil {
			b.stop()
		}
	}
}

var servesAt = regexp.MustCompile(`msg=serving url=(http://\S+)`)

// serve builds the program from this source, and starts it over a Redis. Its URL has the port
// that it found.
func serve(ctx context.Context, redisURL string) (url string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "peers-")
	if err != nil {
		return "", nil, err
	}
	end := func() { _ = os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			end()
		}
	}()
	program := filepath.Join(dir, "sema")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/sema")
	build.Dir = ".."
	if said, err := build.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("go build ./cmd/sema: %w: %.200s", err, said)
	}
	cmd := exec.Command(program, "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "SEMA_URL="+redisURL) // it may have a password
	p, err := child.StartServer(cmd)
	if err != nil {
		return "", nil, err
	}
	remove := end
	end = func() { p.Kill(); remove() }
	for {
		line, err := p.Line(ctx)
		if err != nil {
			return "", nil, fmt.Errorf("sema serve did not start: %w", err)
		}
		if m := servesAt.FindStringSubmatch(line); m != nil {
			return m[1], end, nil
		}
	}
}
