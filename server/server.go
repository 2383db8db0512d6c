// Package server offers the semaphores of an engine over HTTP. Programs in any language
// use its JSON API, described by /v1/openapi.json. Go programs use it as an engine,
// through package engines/httpengine.
//
// The engine decides, and has all limits, queues and permits; the server can lose its own
// state. With Redis behind it, permits survive a restart of the server within their
// leases. With an engine in memory a restart loses everything.
//
// The files, in the order of a request:
//
//	routes.go     the routes, the right that each needs, and who is refused; token.go whose token it is
//	request.go    reads a request, and checks that its token may use a semaphore of this name
//	semaphore.go  a semaphore in use; permit.go, renew.go and hold.go its permits; lives.go those of earlier lives, and of other servers
//	stated.go     what requests say of limits, caps and pools; problem.go the errors
//	operate.go    what operators do; audit.go the record of it; events.go what happens, as a stream
//	remote.go     engines of Go clients: step.go their calls, stream.go their notifications, upgrade.go their connections
//	observe.go    what an Observer is told; reports.go, stats.go and ready.go how the server does
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/internal/loop"
	"sema/internal/once"
	"sema/internal/protocol"
	"sema/internal/rights"
	"sema/watch"
)

// Options of a Server. The zero value of each field is its default.
type Options struct {
	// Tokens are the tokens that clients may use. Default: none, and every client may
	// do everything. Then the server answers only requests for localhost or for an IP
	// address, so that a web page cannot reach it under the page's own host name.
	Tokens *Tokens

	// Log receives errors and the operations of operators. Default: no log.
	Log *slog.Logger

	// Audit receives every operation of an operator, after it succeeded or failed: set a
	// limit, pause, revoke, remove, release another's permit. It also receives every
	// request that is refused for lack of a right. Each record as
	// JSON is a line of an audit log. Default: the records go to Log.
	Audit func(access.Record)

	// AuditFirst receives each operation of an operator before it is tried. If it
	// returns an error, the operation is refused.
	// Default: none.
	AuditFirst func(access.Record) error

	// PublicURL is the address of the server for its users, if a proxy changes it. Pages
	// from that address may change semaphores. If it has a path, paths below it mean the
	// same as paths below /. Default: the address in each request.
	PublicURL *url.URL

	// Proxies are the proxies whose X-Forwarded-For and X-Forwarded-Proto the server
	// trusts. Default: none.
	Proxies []netip.Prefix

	// AccessLog writes each answered request to Log: at level info what is to be expected, as 429 after a wait; at warn
	// a mistake of the client, and 503; at error any other status from 500 on. Default: false.
	AccessLog bool

	// Observer is told of the permits of the JSON API's callers: Acquired, Failed with the error of Acquire,
	// Released and Lost. A permit that another server granted has its Held from the engine. Default: nobody is told.
	Observer sema.Observer

	// Dashboard is served at /. It checks rights itself, because browsers send no
	// bearer tokens. Default: none.
	Dashboard http.Handler

	// Metrics is served at /metrics, to tokens for all names. Default: none.
	Metrics http.Handler

	// Closing is called when the server begins to close. It ends the open responses of
	// Dashboard and Metrics. Default: none.
	Closing func()

	// Watcher is the source of /v1/events. The caller closes it, after the server.
	// Default: the server makes its own.
	Watcher *watch.Watcher

	// MaxWaiters is how many requests of the JSON API may wait for a permit at a time.
	// The next one is answered with status 503. Default 20,000, range 1 … 1,000,000.
	MaxWaiters int

	// TLS configures Serve. It has a certificate or GetCertificate, and allows HTTP/2.
	// Default: no TLS.
	TLS *tls.Config
}

// Server is an http.Handler over an engine. Create it with New.
type Server struct {
	engine   protocol.Engine
	tokens   *Tokens
	log      *slog.Logger
	options  Options
	self     engine.Client
	life     string // identifies this run of the server
	mux      http.Handler
	origins  *http.CrossOriginProtection
	path     string // of PublicURL, without the slash at its end
	toSlash  http.HandlerFunc
	stats    stats
	remotes  remotes
	upgraded upgradedConns
	steps    struct {
		sync.Mutex
		loop.Deadlines
	}
	semaphores semaphores
	waiters    atomic.Int64
	watcher    *watch.Watcher

	closed  atomic.Bool
	ctx     context.Context // ends with done
	cancel  context.CancelFunc
	done    <-chan struct{} // closed by Close
	closing once.Once
	ended   sync.WaitGroup // background goroutines
	ready   ready
	outage  outage

	engineErrors rights.RateLimit // limits the log lines about permanent errors
}

// New makes a server for an engine. The caller closes the engine, after the server. Nil
// options are the defaults. New does no I/O. It fails only on invalid options, with an
// *engine.ArgumentError.
func New(e sema.Engine, o *Options) (*Server, error) {
	if o == nil {
		o = &Options{}
	}
	options := *o
	options.MaxWaiters = cmp.Or(o.MaxWaiters, 20_000)
	if err := cmp.Or(
		protocol.Validate("server", e),
		engine.ValidateRange("server", "Options.MaxWaiters", options.MaxWaiters, 1, 1_000_000),
	); err != nil {
		return nil, err
	}
	origins, path, err := rights.Origins(o.PublicURL)
	if err != nil {
		return nil, &engine.ArgumentError{What: "Options.PublicURL", Value: o.PublicURL.Redacted(), Want: "http or https, a host, perhaps a path"}
	}
	watcher := o.Watcher
	if watcher == nil {
		var err error
		if watcher, err = watch.New(e, nil); err != nil {
			return nil, err
		}
	}
	s := &Server{
		engine: e, tokens: o.Tokens, log: o.Log, options: options, life: rand.Text(),
		self: engine.Self("sema serve"), watcher: watcher, origins: origins, path: path,
		engineErrors: rights.RateLimit{Burst: 1, Every: time.Minute},
		remotes:      remotes{byID: map[string]*remote{}, sessions: map[string]*remoteSession{}, lives: map[string]life{}},
	}
	s.semaphores.byName = map[string]*semaphore{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done = s.ctx.Done()
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.options.Audit == nil {
		s.options.Audit = rights.NewLog(nil, s.log).Add
	}
	s.mux = s.routes()
	s.ended.Go(s.sweep)
	return s, nil
}

// sweep closes unused sessions from time to time.
func (s *Server) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			s.remotes.sweep(now)
			s.semaphores.sweep(s, now)
		case <-s.done:
			return
		}
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setBodyDeadline(w, r) // first, because the deadline of the body holds for every answer
	if len(s.options.Proxies) > 0 {
		r = rights.Proxies(s.options.Proxies).Resolve(r)
	}
	if s.path != "" && r.URL.Path == s.path { // the pages' relative links need the slash
		s.toSlash(w, r)
		return
	}
	if s.path != "" && strings.HasPrefix(r.URL.Path, s.path+"/") {
		http.StripPrefix(s.path, s.mux).ServeHTTP(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Close answers all waiting requests with status 503 and Retry-After. A caller that named
// its permit keeps its place in the queue if it asks another server within seconds, as
// after kill -9. Close ends all streams, and releases permits that last only as long as a
// response. Other permits stay until their leases end. After Close the server answers
// every request with 503.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.remotes.mu.Lock() // no session is opened after this
		s.closed.Store(true)
		s.remotes.mu.Unlock()
		s.outage.mu.Lock() // nothing waits for the engine after this
		s.cancel()
		s.outage.mu.Unlock()
		if s.options.Closing != nil {
			s.options.Closing()
		}
		if s.options.Watcher == nil {
			s.watcher.Close()
		}
		s.ended.Wait()
		s.upgraded.close()
		s.semaphores.close()
		s.remotes.close(func(*remote) bool { return true })
	})
}

const (
	headerTime = 5 * time.Second // for the header of a request
	bodyTime   = 10 * time.Second
	idleTime   = 2 * time.Minute // of a connection between requests
	lastTime   = 10 * time.Second
	listTime   = time.Minute // for the list of a large engine
)

// Serve answers the requests of l's connections, with limits of time and size, until ctx
// ends. Then it closes the server: it answers waiting callers and completes running
// requests, for at most ten seconds, and returns nil. If l fails, it returns that error.
// A limit on the number of connections is l's: see golang.org/x/net/netutil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 16 << 10,
		ErrorLog:  slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		TLSConfig: s.options.TLS,
		HTTP2:     &http.HTTP2Config{SendPingTimeout: beat, PingTimeout: writeTime},
		ConnState: s.stats.connState,
	}
	failed := make(chan error, 1)
	go func() {
		if h.TLSConfig != nil {
			failed <- h.ServeTLS(l, "", "")
			return
		}
		failed <- h.Serve(l)
	}()
	select {
	case err := <-failed:
		s.Close()
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- h.Shutdown(last) }() // accepts no more connections
	s.Close()
	err := <-stopped
	<-failed
	if err != nil {
		_ = h.Close()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("some requests were cut off", "after", lastTime)
		err = nil
	}
	return err
}

// ownSite refuses requests that a browser sends for a web page of another site. A server
// without tokens needs it: otherwise such a page could do everything.
func (s *Server) ownSite(r *http.Request) error {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if net.ParseIP(strings.Trim(host, "[]")) == nil && !strings.EqualFold(host, "localhost") {
		return problem(http.StatusForbidden, "forbidden", "without tokens, the server answers requests for localhost or an IP address, not for %q", shorten(host))
	}
	if err := s.origins.Check(r); err != nil {
		return problem(http.StatusForbidden, "forbidden", "a page of another site sent the request")
	}
	return nil
}
