// Package server offers the semaphores of an engine over HTTP: to programs in
// any language as an API of JSON, described by /v1/openapi.json, and to Go
// programs as an engine, through package engine/httpengine.
//
// The server decides nothing and keeps nothing that it could not lose: limits,
// queues and permits are the engine's. Over Redis, permits survive a restart of
// the server within their leases; over memory nothing does.
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
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/loop"
	"sema/internal/once"
	"sema/internal/rate"
	"sema/watch"
)

// Options of a Server. The zero value of each field is its default.
type Options struct {
	// Tokens are what clients have to show. Default: nothing, and everybody may
	// do everything; then the server answers only requests for localhost or for
	// an IP address, so that no web page reaches it under a name of its own.
	Tokens *Tokens

	// Log is told of errors and of what operators do. Default: nobody.
	Log *slog.Logger

	// Audit is told of everything that operators do, once it is done or has
	// failed: set a limit, pause, revoke, remove, release what is not theirs; and
	// of every request that is refused for want of a right. It
	// may be the method Add of an access.Log. Default: Log is told.
	Audit func(access.Record)

	// AuditFirst is told of each change that an operator wants before it is
	// tried: an error refuses it. It may be the method Begin of an access.Log.
	// Default: nobody is.
	AuditFirst func(access.Record) error

	// PublicURL is the address under which users know the server, where a proxy
	// changes it: pages from there may change something. If it has a path, what is
	// asked for below that is the same as below /. Default: the address that a
	// request was sent to.
	PublicURL *url.URL

	// Proxies are those whose X-Forwarded-For and X-Forwarded-Proto are believed.
	// Default: none.
	Proxies access.Proxies

	// AccessLog has Log told of each request once it is answered: at level info, with
	// a status of 400 and more at warn, of 500 and more at error. Default: it is not.
	AccessLog bool

	// Dashboard is served at /. It checks rights by itself, as browsers show no
	// bearer tokens, and says so by access.Admitted: then the request's connection
	// works, see MaxConns. Default: nothing.
	Dashboard http.Handler

	// Metrics is what is served at /metrics, to tokens for all names. Default:
	// nothing.
	Metrics http.Handler

	// Closing is called when the server begins to close: it ends what Dashboard
	// and Metrics keep open. Default: nothing.
	Closing func()

	// Watcher is what /v1/events listens to; it stays the caller's to close,
	// after the server. Default: one of the server's own.
	Watcher *watch.Watcher

	// MaxWaiters bounds how many wait for a permit through the JSON API at a
	// time, 1 … 1,000,000; the next is answered with status 503. Default 20,000.
	MaxWaiters int

	// MaxConns bounds the connections that Serve has open at a time, 1 … 1,000,000.
	// At the bound a new one takes the place of one that works for nobody, such as
	// one without a request or without a right; while all work, it waits. Default
	// 30,000, or three quarters of the files that the process may have open if
	// those are fewer.
	MaxConns int

	// TLS is what Serve answers with; it has a certificate or GetCertificate, and
	// clients may speak HTTP/2 then. Default: no TLS.
	TLS *tls.Config
}

// Server is an http.Handler over an engine. Create it with New.
type Server struct {
	engine  engine.Engine
	tokens  *Tokens
	log     *slog.Logger
	options Options
	self    engine.Client
	life    string // one life of the server
	mux     *http.ServeMux
	origins *http.CrossOriginProtection
	path    string // of PublicURL, without the slash at its end
	toSlash http.HandlerFunc
	stats   stats
	remotes remotes
	lines   lines
	steps   struct {
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
	ended   sync.WaitGroup // of what runs in the background
	ready   ready

	engineErrors rate.Limit // lines in the log of those that last
}

// New makes a server over an engine, which stays the caller's to close, after
// the server. A nil options means the defaults. It does no I/O, so it fails only
// on values out of range, with an *engine.ArgumentError.
func New(e engine.Engine, o *Options) (*Server, error) {
	if o == nil {
		o = &Options{}
	}
	options := *o
	options.MaxWaiters = cmp.Or(o.MaxWaiters, 20_000)
	options.MaxConns = cmp.Or(o.MaxConns, defaultConns())
	if err := cmp.Or(
		engine.Validate("server", e),
		engine.ValidateRange("server", "Options.MaxWaiters", options.MaxWaiters, 1, 1_000_000),
		engine.ValidateRange("server", "Options.MaxConns", options.MaxConns, 1, 1_000_000),
	); err != nil {
		return nil, err
	}
	origins, path, err := access.Origins(o.PublicURL)
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
		engineErrors: rate.Limit{Burst: 1, Every: time.Minute},
		remotes:      remotes{byID: map[string]*remote{}, sessions: map[string]*remoteSession{}, lives: map[string]life{}},
	}
	s.semaphores.byName = map[string]*semaphore{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done = s.ctx.Done()
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.options.Audit == nil {
		s.options.Audit = access.NewLog(nil, s.log).Add
	}
	s.mux = s.routes()
	s.ended.Go(s.sweep)
	return s, nil
}

// sweep forgets from time to time what nobody uses any more.
func (s *Server) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			s.remotes.sweep(now.Add(-grace))
			s.semaphores.sweep(s, now)
		case <-s.done:
			return
		}
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hurry(w, r) // before all else: whatever is answered, its body has to come
	if len(s.options.Proxies) > 0 {
		r = s.options.Proxies.Resolve(r)
	}
	if s.path != "" && r.URL.Path == s.path { // links of the pages below count from the slash
		s.toSlash(w, r)
		return
	}
	if s.path != "" && strings.HasPrefix(r.URL.Path, s.path+"/") {
		compress(http.StripPrefix(s.path, s.mux), w, r)
		return
	}
	compress(s.mux, w, r)
}

// Close answers all who wait, with status 503 and Retry-After. Callers that named their
// permits keep their places, as after kill -9, if they ask another server within
// seconds. Close ends all streams, and gives back what the server holds for clients
// that live only as long as a response. Permits of others stay until their leases
// end. Then the server answers everything with 503.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.remotes.mu.Lock() // nobody opens a session any more
		s.closed.Store(true)
		s.remotes.mu.Unlock()
		s.cancel()
		if s.options.Closing != nil {
			s.options.Closing()
		}
		if s.options.Watcher == nil {
			s.watcher.Close()
		}
		s.ended.Wait()
		s.lines.close()
		s.semaphores.close()
		s.remotes.sweepAll()
	})
}

// sweepAll closes all sessions.
func (m *remotes) sweepAll() {
	m.mu.Lock()
	sessions := m.sessions
	m.sessions, m.byID = map[string]*remoteSession{}, map[string]*remote{}
	m.mu.Unlock()
	for _, rs := range sessions {
		rs.turn <- struct{}{} // the call at hand is carried out
		_ = rs.inner.Close()
		<-rs.turn
	}
}

const (
	headerTime = 5 * time.Second // for the header of a request
	bodyTime   = 10 * time.Second
	idleTime   = 2 * time.Minute // of a connection between requests
	lastTime   = 10 * time.Second
	listTime   = time.Minute // for the list of a large engine
)

// Serve answers requests that come through l, with limits of time and size,
// until ctx ends. Then it closes the server: waiting callers are answered, requests at
// hand are carried out, for at most ten seconds. The error is nil then, and
// else l's.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 16 << 10,
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnContext: withConn, TLSConfig: s.options.TLS,
		HTTP2:     &http.HTTP2Config{SendPingTimeout: beat, PingTimeout: writeTime},
		ConnState: s.stats.connState,
	}
	bounded := limitConns(l, s.options.MaxConns)
	failed := make(chan error, 1)
	go func() {
		if h.TLSConfig != nil { // outside of the bound: so requests know that they came by TLS
			failed <- h.ServeTLS(bounded, "", "")
			return
		}
		failed <- h.Serve(bounded)
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
	go func() { stopped <- h.Shutdown(last) }() // nobody connects any more
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

// ownSite refuses requests that a web page of another site has a browser send.
// It is for servers without tokens, which is all that such a page lacks.
func (s *Server) ownSite(r *http.Request) error {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if net.ParseIP(strings.Trim(host, "[]")) == nil && !strings.EqualFold(host, "localhost") {
		return problem(http.StatusForbidden, "forbidden", "without tokens, the server answers requests for localhost or an IP address, not for %q", cut(host))
	}
	if err := s.origins.Check(r); err != nil {
		return problem(http.StatusForbidden, "forbidden", "a page of another site sent the request")
	}
	return nil
}
