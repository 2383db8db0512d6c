package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// PgBouncer starts a pooler in front of a PostgreSQL, in which clients share connections
// among transactions. It looks each second whether a server that was away is there again, where PgBouncer's default
// is to refuse everybody for a quarter of a minute.
func PgBouncer(ctx context.Context, postgres *Server) (*Server, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	isReady, err2 := find("pg_isready")
	if errors.Join(err, err2) != nil {
		return nil, errors.New("no PgBouncer on this machine; try: apt-get install pgbouncer")
	}
	return Start(ctx, func(s *Server) (*exec.Cmd, error) {
		file := filepath.Join(s.Dir, "pgbouncer.ini")
		text := fmt.Sprintf("[databases]\npostgres = host=%s user=sema\n[pgbouncer]\nunix_socket_dir = %s\nlisten_port = 6432\nauth_type = any\n"+
			"pool_mode = transaction\nmax_client_conn = 5000\ndefault_pool_size = 50\n"+
			"server_login_retry = 1\nserver_connect_timeout = 2\n", postgres.Dir, s.Dir)
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), giveAway(s.Dir)); err != nil {
			return nil, err
		}
		s.Address = "postgres://sema@/postgres?host=" + s.Dir + "&port=6432&default_query_exec_mode=exec"
		cmd := exec.Command(path, file)
		cmd.SysProcAttr = unprivileged()
		return cmd, nil
	}, func(ctx context.Context, s *Server) error {
		return exec.CommandContext(ctx, isReady, "-q", "-h", s.Dir, "-p", "6432", "-U", "sema").Run()
	})
}
