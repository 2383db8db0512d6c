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
	"net/url"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
	"sema/internal/admit"
	"sema/server"
)

const serveHelp = `Offer the semaphores of an engine over HTTP: to programs in any language, as an
API of JSON that GET /v1/openapi.json describes, and to sema itself, as an
engine: sema run --url http://host:7362 …

  sema serve --url redis://10.0.0.5

Beyond this host it wants a token file, whose lines are
  NAME  read|use|admin  PREFIX[,PREFIX…] or *  SECRET or sha256:HEX
and perhaps expires=2027-01-31 behind that, the first day it is not taken.
read: look; use: acquire, renew, release; admin: limits, pause, revoke, remove.
NAME is 1 to 16 lower-case letters and digits, SECRET at least 16 characters,
HEX the SHA-256 of the secret. Clients show NAME.SECRET, as $SEMA_SERVER_TOKEN
or as "Authorization: Bearer NAME.SECRET". PREFIX: names that begin so. A name
with two lines has two secrets. The file and the certificate are read again when
they change; if something is wrong with them then, those of before stay. Nobody
else may read the token file and the key.

TERM and INT end it: waiters are told to come again, requests at hand are
carried out, for at most ten seconds. Permits have their leases, so a restart
takes none away. /healthz answers as long as the process lives, /readyz as long
as the engine answers. / is the dashboard, for browsers; /metrics is for
Prometheus, and looks at the engine only once it was asked.

The log goes to standard error. The audit log has what operators did, and what
was refused for want of a right, a line of JSON each: time, who (name of the
token), from, what (limit, unset-limit, pause, unpause, revoke, release, remove,
adapt, refused), name, permit, caller, limit, request, lines, result.

The dashboard shows who held what when, for an hour: for that all semaphores are
looked at every five seconds. --history 72h --history-file FILE has it go back
three days and outlive the server; --history 0 keeps nothing.`

// defaultListen is where sema serve listens, reached from this host only.
const defaultListen = "127.0.0.1:7362"

type serveFlags struct {
	listen, cert, key, tokens, audit, public, proxies string
	auditRequired                                     bool
	accessLog                                         bool
	profile                                           string
	history                                           historyFlags
	adapt                                             []string
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
	flags.BoolVar(&f.accessLog, "access-log", false, "log each request: path, status, seconds, who, from")
	flags.StringVar(&f.profile, "profile", "", "address of this host, such as 127.0.0.1:6060, for profiles: go tool pprof http://127.0.0.1:6060/debug/pprof/heap")
	flags.StringVar(&f.audit, "audit", "", "file for the audit log, appended to; - is standard output")
	flags.BoolVar(&f.auditRequired, "audit-required", false, "change nothing of which the audit log cannot have a line, written before")
	flags.StringVar(&f.public, "public-url", "", "where a proxy has the server for its users, such as https://sema.example.org/ops")
	flags.StringVar(&f.proxies, "trusted-proxy", "", "addresses or networks, with commas between, whose X-Forwarded-For and -Proto are believed")
	flags.StringArrayVar(&f.adapt, "adapt", nil, "find the limit of a semaphore from what its holders report, as NAME=MIN:MAX; once for each; see sema adapt")
	f.history.add(cmd)
	return cmd
}

func (p *program) serve(ctx context.Context, f serveFlags) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(&lineCleaner{p}, nil))
	o := server.Options{Log: log, AccessLog: f.accessLog}
	var err error
	if o.Tokens, err = readTokens(f.tokens); err != nil {
		return err
	}
	if err := checkListen(f.listen, o.Tokens != nil); err != nil {
		return err
	}
	if err := f.readProxy(&o); err != nil {
		return err
	}
	certificate := certificate{}
	if o.TLS, err = certificate.config(f.cert, f.key); err != nil {
		return err
	}
	if f.auditRequired && f.audit == "" {
		return usage("--audit FILE", "--audit-required needs --audit")
	}
	audit, closeAudit, err := p.openAudit(f.audit)
	if err != nil {
		return err
	}
	defer closeAudit()
	records := admit.NewLog(audit, log)
	o.Audit = records.Add
	if f.auditRequired {
		o.AuditFirst = records.Begin
	}
	profiles, closeProfiles, err := serveProfiles(f.profile)
	if err != nil {
		return err
	}
	defer closeProfiles()
	at, err := p.open(defaultLease)
	if err != nil {
		return err
	}
	defer at.close()
	if err := lastingError(ctx, at.Engine); err != nil {
		return err
	}
	adapted, err := p.serveAdapt(ctx, at.Engine, f.adapt, func(c sema.Event) {
		log.Info("limit adapted", "semaphore", c.Semaphore, "from", c.From, "limit", c.Limit, "why", c.Why)
	})
	if err != nil {
		return err
	}
	defer adapted()
	figures, unmount, err := mount(at, &o, f.history)
	if err != nil {
		return err
	}
	defer unmount()
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return &exit{exitUnreachable, usage("another --listen", "cannot listen on %s: %v", printable(f.listen, 100), err)}
	}
	scheme := "http"
	if o.TLS != nil {
		scheme = "https"
	} else if o.Tokens != nil && !loopback(l.Addr().String()) {
		log.Warn("tokens and answers travel in the clear", "try", "--tls-cert and --tls-key, or a proxy with TLS on this host")
	}
	s, err := server.New(at.Engine, &o)
	if err != nil {
		_ = l.Close() // it is not used
		return err
	}
	figures.server = s
	log.Info("serving", "url", scheme+"://"+l.Addr().String(), "engine", at.kind, "dir", at.dir, "tokens", o.Tokens != nil)
	if profiles != "" {
		log.Info("profiles", "url", "http://"+profiles+"/debug/pprof/")
	}
	var files sync.WaitGroup
	defer files.Wait()
	reading, end := context.WithCancel(ctx)
	defer end()
	if o.Tokens != nil {
		files.Go(func() {
			p.reread(reading, log, "token file", func() error {
				err := withTokens(f.tokens, o.Tokens.Reread)
				if err == nil {
					warnExpired(log, o.Tokens)
				}
				return err
			}, f.tokens)
		})
	}
	if o.TLS != nil {
		files.Go(func() {
			p.reread(reading, log, "certificate", func() error { return certificate.read(f.cert, f.key) }, f.cert, f.key)
		})
	}
	err = s.Serve(ctx, l)
	if err == nil || errors.Is(err, http.ErrServerClosed) {
		log.Info("stopped")
		return nil
	}
	return &exit{exitUnreachable, err}
}

// lastingError is what the engine answers if that will stay so, such as for a database
// that does not exist. An engine that is away may come.
func lastingError(ctx context.Context, e sema.Engine) error {
	o, err := sema.Operate(e, "sema-readyz")
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // it has nothing to say
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = o.State(ctx)
	var failure *engine.Error
	if errors.As(err, &failure) && !failure.Temporary && ctx.Err() == nil {
		return err
	}
	return nil
}

// readTokens reads the token file, if there is one.
func readTokens(path string) (tokens *server.Tokens, err error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no file is no tokens
	}
	err = withTokens(path, func(in io.Reader) (err error) {
		tokens, err = server.ReadTokens(in)
		return err
	})
	return tokens, err
}

// warnExpired says so if nobody is let in.
func warnExpired(log *slog.Logger, tokens *server.Tokens) {
	if tokens.Expired() {
		log.Warn("all tokens have expired: nobody is let in", "try", "a line with a later day in the token file")
	}
}

// withTokens opens the token file for read.
func withTokens(path string, read func(io.Reader) error) error {
	in, err := os.Open(path)
	if err != nil {
		return usage("a file that this user can read", "token file: %v", err)
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return usage("another file", "token file: %v", err)
	}
	if err := ownOnly("token file", path, info); err != nil {
		return err
	}
	if err := read(in); err != nil {
		return usage("sema serve --help", "%v", err)
	}
	return nil
}

// readProxy reads what stands between the server and its users.
func (f *serveFlags) readProxy(o *server.Options) (err error) {
	if f.proxies != "" {
		if o.Proxies, err = admit.ParseProxies(f.proxies); err != nil {
			return usage("--trusted-proxy 127.0.0.1", "--trusted-proxy: %v", err)
		}
	}
	if f.public != "" {
		if o.PublicURL, err = url.Parse(f.public); err == nil {
			_, _, err = admit.Origins(o.PublicURL)
		}
		if err != nil {
			return usage("--public-url https://sema.example.org", "--public-url %s is no address of a site", redact(f.public))
		}
	}
	return nil
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

// certificate is the server's, as it was last read.
type certificate struct {
	pair atomic.Pointer[tls.Certificate]
}

// config is what a server with a certificate answers with; nil: there is none.
func (c *certificate) config(cert, key string) (*tls.Config, error) {
	if cert == "" && key == "" {
		return nil, nil //nolint:nilnil // no certificate is no TLS
	}
	if cert == "" || key == "" {
		return nil, usage("both", "--tls-cert and --tls-key belong together")
	}
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil }
	return &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12}, c.read(cert, key)
}

func (c *certificate) read(cert, key string) error {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return usage("two files in PEM format that belong together", "certificate: %v", err)
	}
	info, err := os.Stat(key)
	if err == nil {
		err = ownOnly("key", key, info)
	}
	if err != nil {
		return err
	}
	c.pair.Store(&pair)
	return nil
}

// openAudit opens the audit log, if there is to be one.
func (p *program) openAudit(path string) (out io.Writer, closing func(), err error) {
	switch path {
	case "":
		return nil, func() {}, nil
	case "-":
		return p.stdout, func() {}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if errors.Is(err, os.ErrPermission) { // it may be one that we can append to, no more
		file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	}
	if err != nil {
		return nil, nil, usage("a file that this user can write", "audit log: %v", err)
	}
	wholeLines(file)
	return file, func() { _ = file.Close() }, nil
}

// wholeLines ends a line that broke off when the disk was full, or at a crash.
func wholeLines(file *os.File) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return
	}
	last := []byte{'\n'}
	if _, err := file.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
		_, _ = file.WriteString("\n") // what follows is noticed if this is not
	}
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
