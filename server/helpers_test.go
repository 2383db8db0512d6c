package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/pipenet"
	"sema/internal/protocol"
	"sema/internal/rights"
	"sema/internal/wire"
	"sema/server"
)

// testServer is a server under test, with an engine in memory.
type testServer struct {
	testing.TB
	server *server.Server
	engine protocol.Engine
	url    string
	client *http.Client
	token  string
	spec   *spec
	audit  *buffer
	settle func()
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// virtual runs a test with a server in virtual time. Its connections are in memory, and all
// its goroutines end with the test.
func virtual(t *testing.T, o server.Options, run func(t *testing.T, h *testServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		run(t, newVirtual(t, memengine.New(), o))
	})
}

// newVirtual makes the server for a test that already runs in a bubble.
func newVirtual(t *testing.T, e protocol.Engine, o server.Options) *testServer {
	h := newTestServer(t, e, o, func(s http.Handler) *httptest.Server { return pipenet.Serve(s, nil) })
	h.settle = synctest.Wait
	return h
}

// open makes a server with sockets, for other programs.
func open(tb testing.TB, o server.Options) *testServer {
	return newTestServer(tb, memengine.New(), o, httptest.NewServer)
}

func newTestServer(tb testing.TB, e protocol.Engine, o server.Options, serve func(http.Handler) *httptest.Server) *testServer {
	sp, err := readSpec()
	expect.OK(tb, err)
	h := &testServer{TB: tb, engine: e, audit: &buffer{}, spec: sp, settle: func() {}}
	o.Audit = rights.NewLog(h.audit, o.Log).Add
	h.server, err = server.New(e, &o)
	expect.OK(tb, err)
	s := serve(h.server)
	h.url, h.client = s.URL, s.Client()
	tb.Cleanup(func() {
		h.server.Close()
		s.Close()
		_ = e.Close()
	})
	return h
}

// between is an engine that asks before each call of a session, "step" or "state". An error ends the call.
type between struct {
	protocol.Engine
	before func(call string) error
}

func (e between) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := e.Engine.Open(name, who, notify)
	return betweenSession{s, e.before}, err
}

type betweenSession struct {
	protocol.Session
	before func(call string) error
}

func (s betweenSession) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if err := s.before("step"); err != nil {
		return protocol.Reply{}, err
	}
	return s.Session.Step(ctx, c)
}

func (s betweenSession) State(ctx context.Context) (engine.State, error) {
	if err := s.before("state"); err != nil {
		return engine.State{}, err
	}
	return s.Session.State(ctx)
}

// newDashboard is one where everybody may do everything.
func newDashboard(tb testing.TB, e protocol.Engine, o dashboard.Options) *dashboard.Handler {
	o.Allow = func(*http.Request) access.Who { return access.Who{Name: "local", Right: rights.Admin} }
	d, err := dashboard.New(e, &o)
	expect.OK(tb, err)
	tb.Cleanup(d.Close)
	return d
}

// page asks for a page of the dashboard, or posts a form of one.
func (h *testServer) page(status int, method, path string, form url.Values) {
	h.Helper()
	r, err := http.NewRequest(method, h.url+path, strings.NewReader(form.Encode()))
	expect.OK(h, err)
	r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Sec-Fetch-Site": {"same-origin"}}
	resp, err := (&http.Client{Transport: h.client.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
	expect.OK(h, err)
	_ = resp.Body.Close()
	if resp.StatusCode != status {
		h.Errorf("%s %s: %s, want %d", method, path, resp.Status, status)
	}
}

// answer is a response with its whole body.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// field is a field of the body's object.
func (a answer) field(name string) any {
	var v map[string]any
	_ = json.Unmarshal(a.body, &v) // after an error the field is nil, which fails the test
	return v[name]
}

// do sends a request and checks the answer against the OpenAPI description.
func (h *testServer) do(method, path, body string, header ...string) answer {
	h.Helper()
	a, err := h.try(context.Background(), method, path, body, header...)
	expect.OK(h, err)
	return a
}

// request makes a request to the server. Its header says the type of the body, and the server's token.
func (h *testServer) request(ctx context.Context, method, path, body string, header ...string) *http.Request {
	h.Helper()
	r, err := http.NewRequestWithContext(ctx, method, h.url+path, strings.NewReader(body))
	expect.OK(h, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if h.token != "" {
		r.Header.Set("Authorization", "Bearer "+h.token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// stream sends a request and returns the answer once it has begun. The body is closed with the test.
func (h *testServer) stream(ctx context.Context, method, path, body string, header ...string) *http.Response {
	h.Helper()
	w, err := h.client.Do(h.request(ctx, method, path, body, header...))
	expect.OK(h, err)
	h.Cleanup(func() { _ = w.Body.Close() })
	return w
}

func (h *testServer) try(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	r := h.request(ctx, method, path, body, header...)
	w, err := h.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = w.Body.Close() }()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{w.StatusCode, w.Header, text}
	h.spec.check(h, r, a)
	switch a.status { // problems about the state of a semaphore
	case 409, 410, 423, 429:
		rest, ok := strings.CutPrefix(r.URL.Path, "/v1/semaphores/")
		name, _, _ := strings.Cut(rest, "/")
		if detail, _ := a.field("detail").(string); ok && !strings.HasPrefix(detail, fmt.Sprintf("%q: ", name)) {
			h.Errorf("%s %s: %q does not name the semaphore", method, path, detail)
		}
	}
	return a, nil
}

// later sends a PUT that waits. After an error the status of the answer is 0.
func (h *testServer) later(ctx context.Context, path, body string) <-chan answer {
	answered := make(chan answer, 1)
	go func() {
		a, _ := h.try(ctx, "PUT", path, body)
		answered <- a
	}()
	return answered
}

// want is do, and checks the status.
func (h *testServer) want(status int, method, path, body string, header ...string) answer {
	h.Helper()
	a := h.do(method, path, body, header...)
	if a.status != status {
		h.Fatalf("%s %s %q: status %d, want %d: %s", method, path, body[:min(len(body), 100)], a.status, status, a.body)
	}
	return a
}

// step sends a call as Go programs do.
func (h *testServer) step(status int, client, name string, number uint64, requests ...protocol.Request) {
	h.Helper()
	body := wire.AppendStep(nil, &wire.Step{Client: client, Open: &wire.Open{Name: name}, Call: protocol.Call{Number: number, Requests: requests}})
	h.want(status, "POST", "/v1/engine/step", string(body), "Content-Type", wire.ContentType)
}

// waiting waits until n tickets wait for a semaphore. There is no event for that.
func (h *testServer) waiting(name string, n int) {
	h.Helper()
	expect.Until(h, fmt.Sprint(n, " waiters of ", name), func() bool { return len(h.state(name).Waiters) == n })
}

// state reads a semaphore from the engine. In virtual time it first waits until the server
// is idle, for example has withdrawn a refused ask.
func (h *testServer) state(name string) engine.State {
	h.Helper()
	h.settle()
	s, err := h.engine.Open(name, engine.Client{}, func(protocol.Notification) {})
	expect.OK(h, err)
	defer func() { _ = s.Close() }()
	st, err := s.State(context.Background())
	expect.OK(h, err)
	return st
}

// spec is the OpenAPI description.
type spec struct {
	doc     map[string]any
	schemas map[string]*jsonschema.Schema
}

// readSpec reads the description from a server, once for all tests.
var readSpec = sync.OnceValues(func() (*spec, error) {
	e := memengine.New()
	s, err := server.New(e, nil)
	if err != nil {
		return nil, err
	}
	defer func() { s.Close(); _ = e.Close() }()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/v1/openapi.json", nil))
	doc, err := jsonschema.UnmarshalJSON(w.Body)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		return nil, err
	}
	sp := &spec{doc: doc.(map[string]any), schemas: map[string]*jsonschema.Schema{}}
	for name := range at(sp.doc, "components", "schemas").(map[string]any) {
		if sp.schemas[name], err = c.Compile("openapi.json#/components/schemas/" + name); err != nil {
			return nil, err
		}
	}
	return sp, nil
})

// at returns a part of the description, with references resolved.
func (s *spec) at(v any, path ...string) any {
	for _, p := range path {
		v = at(v, p)
		if ref, ok := at(v, "$ref").(string); ok {
			v = at(s.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return v
}

func at(v any, path ...string) any {
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// operation returns the description of a request.
func (s *spec) operation(method, path string) any {
	words := strings.Split(path, "/")
	for pattern, item := range s.doc["paths"].(map[string]any) {
		parts := strings.Split(pattern, "/")
		match := len(parts) == len(words)
		for i := 0; match && i < len(parts); i++ {
			match = parts[i] == words[i] || strings.HasPrefix(parts[i], "{")
		}
		if match {
			return at(item, strings.ToLower(method))
		}
	}
	return nil
}

// check checks an answer against the description.
func (s *spec) check(tb testing.TB, r *http.Request, a answer) {
	tb.Helper()
	op := s.operation(r.Method, r.URL.EscapedPath())
	own := strings.HasPrefix(r.URL.Path, "/v1/engine/") // only for programs of sema
	schema := ""
	if own && a.status < 400 {
		return
	}
	if op == nil { // there is no such route: the answer must still be a problem
		schema = "Problem"
		if a.status < 400 {
			tb.Errorf("%s %s: status %d, but the route is not described", r.Method, r.URL.Path, a.status)
		}
	} else {
		kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
		response := s.at(op, "responses", fmt.Sprint(a.status))
		if response == nil {
			tb.Errorf("%s %s: status %d is not described: %s", r.Method, r.URL.Path, a.status, a.body)
			return
		}
		content := at(response, "content")
		if content == nil {
			if len(a.body) > 0 {
				tb.Errorf("%s %s: a body that is not described: %s", r.Method, r.URL.Path, a.body)
			}
			return
		}
		described, ok := content.(map[string]any)[kind]
		if !ok {
			tb.Errorf("%s %s: the content type %q is not described", r.Method, r.URL.Path, kind)
			return
		}
		ref, _ := at(described, "schema", "$ref").(string)
		schema = strings.TrimPrefix(ref, "#/components/schemas/")
	}
	if schema == "" || schema == "ServerSentEvent" {
		return
	}
	for line := range strings.Lines(string(a.body)) { // each line is an object, also in streams
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err == nil {
			err = s.schemas[schema].Validate(v)
		}
		if err != nil {
			tb.Errorf("%s %s: %d %s: %v", r.Method, r.URL.Path, a.status, line, err)
		}
	}
	if schema == "Problem" && a.field("status") != float64(a.status) {
		tb.Errorf("the status is %d; the problem says %s", a.status, a.body)
	}
}
