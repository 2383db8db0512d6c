package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"sema/engines/pgengine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/local"
)

// start starts what a scene's contestants share.
func start(ctx context.Context, kind string) (store string, stop func(), err error) {
	switch kind {
	case "redis":
		return startRedis(ctx)
	case "postgres":
		return startPostgres(ctx)
	case "files":
		dir, err := os.MkdirTemp("", "bench")
		return dir, func() { _ = os.RemoveAll(dir) }, err
	}
	return "", func() {}, nil
}

// startRedis starts a redis-server that keeps nothing.
func startRedis(ctx context.Context) (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	_ = l.Close()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	s, err := local.Redis(ctx, "--port", port, "--bind", host)
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), s.Stop, nil
}

// startPostgres starts a server whose commits wait for a millisecond, as for the disk of a cloud.
func startPostgres(ctx context.Context) (url string, stop func(), err error) {
	s, err := local.Postgres(ctx, "-c", "fsync=on", "-c", "commit_delay=1000", "-c", "commit_siblings=0", "-c", "max_connections=600")
	if err != nil {
		return "", nil, err
	}
	c, err := pgx.Connect(ctx, s.Address)
	if err == nil {
		_, err = c.Exec(ctx, (*pgengine.Options)(nil).SQL()+
			`;CREATE TABLE slots (name text, slot int, owner text, until timestamptz NOT NULL, PRIMARY KEY (name, slot)) WITH (fillfactor = 50)`)
		err = errors.Join(err, c.Close(ctx))
	}
	if err != nil {
		s.Stop()
		return "", nil, err
	}
	return s.Address, s.Stop, nil
}

// build is this program, made of some checkout.
type build struct {
	root   string // of the checkout
	dir    string // temporary
	bench  string // the program
	served []*child.Process
}

func ownBuild() (*build, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench")
	return &build{root: "..", dir: dir, bench: self}, err
}

// remove ends the servers, and removes what was made.
func (b *build) remove() {
	for _, p := range b.served {
		p.Kill()
	}
	_ = os.RemoveAll(b.dir)
}

// command runs a command in a directory.
func command(ctx context.Context, dir string, words ...string) error {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, said)
	}
	return nil
}

var replaced = regexp.MustCompile(`(?m)^replace (\S+) => \.\.(\S*)$`)

// besides builds the sources of this directory with the library of another checkout, or of a commit.
func besides(ctx context.Context, from string) (b *build, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	b = &build{dir: dir, bench: filepath.Join(dir, "bench")}
	defer func() {
		if err != nil {
			b.remove()
		}
	}()
	if info, failed := os.Stat(from); failed == nil && info.IsDir() {
		if b.root, err = filepath.Abs(from); err != nil {
			return nil, err
		}
	} else {
		b.root = filepath.Join(dir, "checkout")
		archive := fmt.Sprintf("mkdir %[1]s && git -C .. archive %[2]s | tar -x -C %[1]s", b.root, from)
		if err := command(ctx, ".", "bash", "-o", "pipefail", "-c", archive); err != nil {
			return nil, err
		}
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		return nil, err
	}
	// A part of this repository may not have been a module of its own there.
	text := replaced.ReplaceAllStringFunc(string(module), func(line string) string {
		part := replaced.FindStringSubmatch(line)
		at := filepath.Join(b.root, part[2])
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err != nil {
			return fmt.Sprintf("exclude %s v0.0.0", part[1])
		}
		return fmt.Sprintf("replace %s => %s", part[1], at)
	})
	sources := filepath.Join(dir, "sources")
	err = os.Mkdir(sources, 0o700)
	files, _ := filepath.Glob("*.go")
	for _, name := range append(files, "go.sum") {
		if err == nil && !strings.HasSuffix(name, "_test.go") {
			var words []byte
			if words, err = os.ReadFile(name); err == nil {
				err = os.WriteFile(filepath.Join(sources, name), words, 0o600)
			}
		}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(sources, "go.mod"), []byte(text), 0o600)
	}
	if err == nil {
		err = command(ctx, sources, "go", "build", "-mod=mod", "-o", b.bench, ".")
	}
	return b, err
}

var servesAt = regexp.MustCompile(`msg=serving url=(http://\S+)`)

// serve starts the program "sema serve" of the checkout over a Redis, and returns its URL.
func (b *build) serve(ctx context.Context, store string) (string, error) {
	program := filepath.Join(b.dir, "sema")
	if _, err := os.Stat(program); err != nil {
		if err := command(ctx, filepath.Join(b.root, "cmd", "sema"), "go", "build", "-o", program, "."); err != nil {
			return "", err
		}
	}
	cmd := exec.Command(program, "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "SEMA_URL=redis://"+store)
	p, err := child.StartServer(cmd)
	if err != nil {
		return "", err
	}
	b.served = append(b.served, p)
	for {
		line, err := p.Line(ctx)
		if err != nil {
			return "", fmt.Errorf("sema serve did not start: %w", err)
		}
		if m := servesAt.FindStringSubmatch(line); m != nil {
			return m[1], nil
		}
	}
}
