package cli

import (
	"context"
	"crypto/tls"
	"errors"
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
	"sema/internal/rights"
	"sema/server"
)

const serveHelp = `Offer the semaphores of an engine over HTTP: to programs in any language, with
JSON, and to sema itself, as an engine.

  sema serve --url redis://10.0.0.5
  sema run --url http://127.0.0.1:7362 …

For clients on other hosts the server needs a token file. Each line is
  NAME  read|use|admin  PREFIX[,PREFIX…] or *  SECRET or sha256:HEX
with expires=2027-01-31 behind it if the token ends. SECRET has 16 characters or more.
TERM and INT end the server. The log goes to standard error. / is the dashboard.

docs/serve.md says more: tokens, restarts, paths, audit log.`

// defaultListen is where sema serve listens, reached from this host only.
const defaultListen = "127.0.0.1:7362"

type serveFlags struct {
	listen, cert, key, tokens, audit, public, proxies string
	auditRequired                                     bool
	accessLog                                         bool
	logFormat, logLevel                               string
	profile                                           string
	adapt                                             []string
}

func (p *program) serveCommand() *cobra.Command {
	f := serveFlags{}
	cmd := p.newCommand("serve [flags]", "Offer semaphores over HTTP", serveHelp,
		func(cmd *cobra.Command, _ []string) error { return p.serve(cmd.Context(), f) })
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.listen, "listen", defaultListen, "address and port; port 0: any free port")
	flags.StringVar(&f.tokens, "token-file", "", "file of tokens and their rights; needed for clients on other hosts")
	flags.StringVar(&f.cert, "tls-cert", "", "file with the certificate and its chain")
	flags.StringVar(&f.key, "tls-key", "", "file with the certificate's key")
	flags.StringVar(&f.audit, "audit", "", "append the audit log to this file; - is standard output")
	flags.StringVar(&f.public, "public-url", "", "the server's address for its users behind a proxy, such as https://sema.example.org/ops")
	flags.StringVar(&f.proxies, "trusted-proxy", "", "addresses or networks of proxies whose X-Forwarded-For and -Proto are true, with commas between")
	flags.BoolVar(&f.auditRequired, "audit-required", false, "refuse a change if the audit log cannot be written first")
	flags.BoolVar(&f.accessLog, "access-log", false, "log each request: path, status, seconds, who, from")
	flags.StringVar(&f.logFormat, "log-format", "text", "of the log on standard error: text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "the least that is logged: debug, info, warn or error")
	flags.StringArrayVar(&f.adapt, "adapt", nil, "NAME=MIN:MAX: find the limit of a semaphore; may be repeated; see sema adapt")
	flags.StringVar(&f.profile, "profile", "", "address on this host for profiles, such as 127.0.0.1:6060: go tool pprof http://127.0.0.1:6060/debug/pprof/heap")
	lessUsed(cmd, "public-url", "trusted-proxy", "audit-required", "access-log", "log-format", "log-level", "adapt", "profile")
	return cmd
}

// logger makes the log of a server.
func (p *program) logger(format, level string) (*slog.Logger, error) {
	o := slog.HandlerOptions{}
	switch level {
	case "debug":
		o.Level = slog.LevelDebug
	case "info":
	case "warn":
		o.Level = slog.LevelWarn
	case "error":
		o.Level = slog.LevelError
	default:
		return nil, usage("--log-level info", "--log-level %s: want debug, info, warn or error", printable(level, 60))
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(&lineCleaner{p}, &o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(&lineCleaner{p}, &o)), nil
	}
	return nil, usage("--log-format json", "--log-format %s: want text or json", printable(format, 60))
}

func (p *program) serve(ctx context.Context, f serveFlags) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	log, err := p.logger(f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	o := server.Options{Log: log, AccessLog: f.accessLog}
	if f.tokens != "" {
		err := withTokens(f.tokens, func(in io.Reader) (err error) {
			o.Tokens, err = server.ReadTokens(in)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := checkListen(f.listen, o.Tokens != nil); err != nil {
		return err
	}
	if err := f.readProxy(&o); err != nil {
		return err
	}
	readCertificate, err := f.certificate(&o)
	if err != nil {
		return err
	}
	adapts, err := readAdapts(f.adapt)
	if err != nil {
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
	records := rights.NewLog(audit, log)
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
	if err := lastingError(ctx, at.Engine, log); err != nil {
		return err
	}
	figures, unmount, err := mount(at, &o)
	if err != nil {
		return err
	}
	defer unmount()
	l, err := listen(f.listen, mostConns(), vanished)
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
	var others sync.WaitGroup
	defer others.Wait()
	serving, end := context.WithCancel(ctx)
	defer end()
	for _, a := range adapts {
		others.Go(func() {
			_ = decide(serving, at.Engine, a.name, a.is, func(c sema.Event) { // it ends with serving
				log.Info("limit adapted", "semaphore", c.Semaphore, "from", c.From, "limit", c.Limit, "why", c.Why)
			})
		})
	}
	if o.Tokens != nil {
		others.Go(func() {
			p.reread(serving, log, "token file", func() error {
				err := withTokens(f.tokens, o.Tokens.Reread)
				if err == nil && o.Tokens.Expired() {
					log.Warn("all tokens have expired: nobody is let in", "try", "a line with a later day in the token file")
				}
				return err
			}, f.tokens)
		})
	}
	if o.TLS != nil {
		others.Go(func() { p.reread(serving, log, "certificate", readCertificate, f.cert, f.key) })
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
func lastingError(ctx context.Context, e sema.Engine, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := look(ctx, e, "serve", "sema-readyz")
	if failure, ok := errors.AsType[*engine.Error](err); ok && !failure.Temporary {
		return err
	}
	if err != nil {
		log.Warn("the engine does not answer yet", "error", err)
	}
	return nil
}

// withTokens opens the token file for read.
func withTokens(path string, read func(io.Reader) error) error {
	in, err := os.Open(path)
	if err != nil {
		return usage("a file that this user can read", "token file: %v", err)
	}
	defer func() { _ = in.Close() }()
	if err := ownOnly("token file", path); err != nil {
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
		if o.Proxies, err = rights.ParseProxies(f.proxies); err != nil {
			return usage("--trusted-proxy 127.0.0.1", "--trusted-proxy: %v", err)
		}
	}
	if f.public != "" {
		if o.PublicURL, err = url.Parse(f.public); err == nil {
			_, _, err = rights.Origins(o.PublicURL)
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

// certificate has o answer with the certificate that read has read last; a nil read:
// there is none.
func (f *serveFlags) certificate(o *server.Options) (read func() error, err error) {
	if f.cert == "" && f.key == "" {
		return nil, nil //nolint:nilnil // no certificate is no TLS
	}
	if f.cert == "" || f.key == "" {
		return nil, usage("both", "--tls-cert and --tls-key belong together")
	}
	var last atomic.Pointer[tls.Certificate]
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return last.Load(), nil }
	o.TLS = &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12}
	read = func() error {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return usage("two files in PEM format that belong together", "certificate: %v", err)
		}
		if err := ownOnly("key", f.key); err != nil {
			return err
		}
		last.Store(&pair)
		return nil
	}
	return read, read()
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
	c.p.writeLine(c.p.clean(string(line)))
	return len(line), nil
}
