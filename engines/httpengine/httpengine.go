// Package httpengine uses the engine behind a server of package server ("sema serve").
// It is for programs without credentials of the store, or without a network path to it.
//
// The server answers each call once. It sends notifications as one response that lasts
// until the engine is closed. Calls use upgraded connections, or plain HTTP requests if a
// proxy does not support upgrades. The engine behind the server has the permits' leases.
// So a restart of the server costs no holder its permit, unless the server keeps its
// semaphores in memory.
//
// # Limitations
//
// The limitations of the server's engine apply. In addition, one kind of permit stays
// taken until its lease ends: it was granted in the first call after a restart of the
// server, and its answer was lost because the server ended again.
package httpengine

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/protocol"
	"sema/internal/wire"
)

// Options configure an engine. The zero value of each field is its default.
type Options struct {
	// Token authenticates the client to the server: NAME.SECRET, at most 4096 printable
	// ASCII characters. No error contains it. Default: no token.
	Token string

	// TLS configures connections to servers at https://. Default: Go's configuration.
	TLS *tls.Config
}

// Engine uses the semaphores of a server. Create it with New and share it: its sessions
// share connections.
type Engine struct {
	base     string // the URL before the path of a request
	token    string // for the Authorization header; "": none
	id       string // the first part of the names of its sessions
	client   *http.Client
	upgraded connPool

	mu       sync.Mutex
	number   uint64
	sessions map[string]*session
	closed   bool
	stream   context.CancelFunc // ends the stream of notifications; nil: not started
	streams  sync.WaitGroup
}

// New makes an engine for the server at an http:// or https:// URL, which may have a path.
// It does no I/O. An invalid URL or token is an *engine.ArgumentError.
func New(rawURL string, o *Options) (*Engine, error) {
	if o == nil {
		o = &Options{}
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, &engine.ArgumentError{What: "URL", Value: printable(u), Want: "http://host:port or https://host:port; the token is an option"}
	}
	name, secret, _ := strings.Cut(o.Token, ".")
	if o.Token == "" {
		name, secret = "local", "none"
	}
	if !wire.TokenName(name) || secret == "" || len(o.Token) > maxToken || strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &engine.ArgumentError{What: "token", Value: "…", Want: fmt.Sprintf("NAME.SECRET, at most %d characters, the name of 1 to 16 lower-case letters and digits", maxToken)}
	}
	random := strings.ToLower(rand.Text()[:13])
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	u.Path = strings.TrimSuffix(u.Path, "/")
	return &Engine{
		upgraded: connPool{never: proxy != nil || err != nil},
		base:     strings.TrimSuffix(u.String(), "/"), token: o.Token, id: "http." + name + "." + random,
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}).DialContext,
				TLSClientConfig:     o.TLS,
				TLSHandshakeTimeout: dialTime, MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute,
				DisableCompression: true, WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		sessions: map[string]*session{},
	}, nil
}

const (
	dialTime = 3 * time.Second
	maxToken = 4096
)

// printable is the part of a URL that an error may show: the rest may have a password.
func printable(u *url.URL) string {
	if u == nil || u.Host == "" {
		return "…"
	}
	return u.Scheme + "://" + u.Host
}

// Open implements sema.Engine.
func (e *Engine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	if err := engine.ValidateName(name); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, engine.ErrClosed
	}
	e.number++
	s := &session{engine: e, name: name, who: who, notify: notify, client: e.id + "." + strconv.FormatUint(e.number, 36)}
	e.sessions[s.client] = s
	return s, nil
}

// List implements sema.Engine. It returns the names that the token may see.
func (e *Engine) List(ctx context.Context) ([]string, error) {
	names := []string{}
	if err := e.get(ctx, "list", "", "/v1/engine/list", &names); err != nil {
		return nil, err
	}
	return names, nil
}

// Close implements sema.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	sessions, stop := e.sessions, e.stream
	e.sessions, e.stream = map[string]*session{}, nil
	e.mu.Unlock()
	if stop != nil {
		stop()
	}
	for _, s := range sessions {
		s.notify(protocol.Notification{Closed: true})
	}
	e.streams.Wait()
	e.upgraded.close()
	e.client.CloseIdleConnections()
	return nil
}

func (e *Engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// get requests a path and decodes the JSON of the answer into v.
func (e *Engine) get(ctx context.Context, op, name, path string, v any) error {
	if e.isClosed() {
		return notExecuted(op, name, engine.ErrClosed)
	}
	r, err := e.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return notExecuted(op, name, err)
	}
	body, failure := e.do(r, op, name, nil)
	if failure != nil {
		failure.NotExecuted = true
		return failure
	}
	if err := json.Unmarshal(body, v); err != nil {
		return &engine.Error{Op: op, Name: name, NotExecuted: true, Err: fmt.Errorf("the server's answer cannot be decoded: %w", err), Hint: checkURL}
	}
	return nil
}

const checkURL = "check that the URL is that of sema serve"

func notExecuted(op, name string, err error) *engine.Error {
	return &engine.Error{Op: op, Name: name, NotExecuted: true, Err: err}
}

func (e *Engine) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, e.base+path, reader)
	if err == nil && e.token != "" {
		r.Header["Authorization"] = []string{"Bearer " + e.token}
	}
	return r, err
}

// maxAnswer is the largest answer of a server, in bytes.
const maxAnswer = 64 << 20

// do sends a request and reads the answer into buffer. A status other than success is an
// error.
func (e *Engine) do(r *http.Request, op, name string, buffer []byte) ([]byte, *engine.Error) {
	answer, err := e.client.Do(r)
	if err != nil {
		return nil, noAnswer(op, name, err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := wire.ReadAll(io.LimitReader(answer.Body, maxAnswer), buffer[:0])
	if err != nil {
		return nil, noAnswer(op, name, err)
	}
	if answer.StatusCode >= 300 {
		return nil, refused(op, name, answer, body)
	}
	return body, nil
}
