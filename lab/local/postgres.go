package local

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Postgres starts a PostgreSQL server with an empty database, and arguments beside those
// that let it serve.
func Postgres(ctx context.Context, args ...string) (*Server, error) {
	return postgres(ctx, "initdb", args, "-U", "sema", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
}

// Standby starts a server that follows a PostgreSQL, and begins with what that has.
func Standby(ctx context.Context, primary *Server, args ...string) (*Server, error) {
	return postgres(ctx, "pg_basebackup", args, "-U", "sema", "-h", primary.Dir, "-R", "-X", "stream", "-c", "fast", "--no-sync")
}

// postgres starts a server on what a program with these words has put into its directory.
func postgres(ctx context.Context, program string, args []string, words ...string) (*Server, error) {
	fill, err1 := find(program)
	serve, err2 := find("postgres")
	isReady, err3 := find("pg_isready")
	if errors.Join(err1, err2, err3) != nil {
		return nil, errors.New("no PostgreSQL on this machine; try: apt-get install postgresql")
	}
	return Start(ctx, func(s *Server) (*exec.Cmd, error) {
		if err := giveAway(s.Dir); err != nil {
			return nil, err
		}
		data := filepath.Join(s.Dir, "data")
		first := exec.CommandContext(ctx, fill, append(words, "-D", data)...)
		first.SysProcAttr = unprivileged()
		first.Dir = s.Dir
		if out, err := first.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", program, err, out)
		}
		s.Address = "postgres://sema@/postgres?host=" + s.Dir
		cmd := exec.Command(serve, append([]string{"-D", data, "-k", s.Dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"}, args...)...)
		cmd.SysProcAttr = unprivileged()
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
