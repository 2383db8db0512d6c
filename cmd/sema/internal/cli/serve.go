package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"sema/access"
	"sema/server"
)

const serveHelp = `Offer the semaphores of an engine over HTTP: to programs in any language, as an
API of JSON that GET /v1/openapi.json describes, and to sema itself, as an
engine: sema run --url http://host:7362 …

  sema serve --url redis://10.0.0.5

Beyond this host it wants a token file, whose lines are
  NAME  read|use|admin  PREFIX[,PREFIX…] or *  SECRET or sha256:HEX
read: look; use: acquire, renew, release; admin: limits, pause, revoke, remove.
NAME is 1 to 16 lower-case letters and digits, SECRET at least 16 characters,
HEX the SHA-256 of the secret. Clients show NAME.SECRET, as $SEMA_SERVER_TOKEN
or as "Authorization: Bearer NAME.SECRET". PREFIX: names that begin so.

TERM and INT end it: waiters are told to come again, requests at hand are
carried out, for at most ten seconds. Permits have their leases, so a restart
takes none away. /healthz answers as long as the process lives, /readyz as long
as the engine answers. / is the dashboard, for browsers; /metrics is for
Prometheus, and looks at the engine only once it was asked.

The log goes to standard error. The audit log has what operators did, a line of
JSON each: time, who (name of the token), from, what (limit, unset-limit, pause,
unpause, revoke, release, remove), name, permit, limit, result.

The dashboard shows who held what when, for an hour: for that all semaphores are
looked at every five seconds. --history 72h --history-file FILE has it go back
three days and outlive the server; --history 0 keeps nothing.`

// defaultListen is where sema serve listens, reached from this host only.
const defaultListen = "127.0.0.1:7362"

type serveFlags struct {
	listen, cert, key, tokens, audit string
	history                          historyFlags
}

func (p *program) serveCommand() *cobra.Command {
	f := serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Offer semaphores over HTTP",
		Long:  help(serveHelp, exitCodesHelp),
		Args:  needArgs(0, 0, "without arguments"),
		RunE:  func(cmd *cobra.Command, _ []string) error { return p.serve(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.listen, "listen", defaultListen, "address and port; port 0: any that is free")
	flags.StringVar(&f.tokens, "token-file", "", "who may do what; needed beyond this host")
	flags.StringVar(&f.cert, "tls-cert", "", "file with the certificate, and those that lead to its root")
	flags.StringVar(&f.key, "tls-key", "", "file with the certificate's key")
	flags.StringVar(&f.audit, "audit", "", "file for the audit log, appended to; - is standard output")
	f.history.add(cmd)
	return cmd
}

func (p *program) serve(ctx context.Context, f serveFlags) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(&lineCleaner{p}, nil))
	o := server.Options{Log: log}
	var err error
	if o.Tokens, err = readTokens(f.tokens); err != nil {
		return err
	}
	if err := checkListen(f.listen, o.Tokens != nil); err != nil {
		return err
	}
	config, err := readCertificate(f.cert, f.key)
	if err != nil {
		return err
	}
	audit, closeAudit, err := p.openAudit(f.audit)
	if err != nil {
		return err
	}
	defer closeAudit()
	o.Audit = access.NewLog(audit, log).Add
	at, err := p.open(defaultLease)
	if err != nil {
		return err
	}
	defer at.close()
	unmount, err := mount(at, &o, f.history)
	if err != nil {
		return err
	}
	defer unmount()
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return &exit{exitUnreachable, usage("another --listen", "cannot listen on %s: %v", printable(f.listen, 100), err)}
	}
	scheme := "http"
	if config != nil {
		scheme = "https"
		l = tls.NewListener(l, config)
	} else if o.Tokens != nil && !loopback(l.Addr().String()) {
		log.Warn("tokens and answers travel in the clear", "try", "--tls-cert and --tls-key, or a proxy with TLS on this host")
	}
	s, err := server.New(at.Engine, &o)
	if err != nil {
		_ = l.Close() // it is not used
		return err
	}
	log.Info("serving", "url", scheme+"://"+l.Addr().String(), "engine", at.kind, "dir", at.dir, "tokens", o.Tokens != nil)
	err = s.Serve(ctx, l)
	if err == nil || errors.Is(err, http.ErrServerClosed) {
		log.Info("stopped")
		return nil
	}
	return &exit{exitUnreachable, err}
}

// readTokens reads the token file, if there is one.
func readTokens(path string) (*server.Tokens, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no file is no tokens
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, usage("a file that this user can read", "token file: %v", err)
	}
	defer func() { _ = in.Close() }()
	tokens, err := server.ReadTokens(in)
	if err != nil {
		return nil, usage("sema serve --help", "%v", err)
	}
	return tokens, nil
}

// checkListen refuses to let other hosts in without tokens.
func checkListen(address string, tokens bool) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return usage("--listen "+defaultListen, "--listen %s: want HOST:PORT, or :PORT for all addresses", printable(address, 100))
	}
	if !tokens && !loopback(address) {
		return usage("--token-file FILE; sema serve --help has its form", "--listen %s lets other hosts in, so a token file is needed", printable(address, 100))
	}
	return nil
}

// loopback reports whether an address is reached from this host only.
func loopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func readCertificate(cert, key string) (*tls.Config, error) {
	if cert == "" && key == "" {
		return nil, nil //nolint:nilnil // no certificate is no TLS
	}
	if cert == "" || key == "" {
		return nil, usage("both", "--tls-cert and --tls-key belong together")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, usage("two files in PEM format that belong together", "certificate: %v", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}

// openAudit opens the audit log, if there is to be one.
func (p *program) openAudit(path string) (out io.Writer, closing func(), err error) {
	switch path {
	case "":
		return nil, func() {}, nil
	case "-":
		return p.stdout, func() {}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, usage("a file that this user can write", "audit log: %v", err)
	}
	return file, func() { _ = file.Close() }, nil
}

// lineCleaner writes lines of the log to standard error, without secrets.
type lineCleaner struct{ p *program }

// Write implements io.Writer.
func (c *lineCleaner) Write(line []byte) (int, error) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if _, err := fmt.Fprintln(c.p.stderr, c.p.clean(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}
