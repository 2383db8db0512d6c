package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/loop"
)

// pingServer asks a sema serve.
type pingServer struct {
	base   string
	token  string
	client *http.Client
}

func newPingServer(a address, token string) *pingServer {
	return &pingServer{base: strings.TrimSuffix(a.raw, "/"), token: token, client: &http.Client{
		Timeout:       3 * time.Second,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (s *pingServer) close() { s.client.CloseIdleConnections() }

const notServer = "check that the URL is that of sema serve"

// look asks whether the engine behind the server answers.
func (s *pingServer) look(ctx context.Context) error {
	return loop.Repeat(ctx, func() error {
		status, text, err := s.get(ctx, http.MethodGet, "/readyz")
		failure := &engine.Error{Op: "ping", Temporary: true, Err: err, Hint: "check that the server runs and the address is right"}
		switch {
		case err != nil:
			return failure
		case status == http.StatusServiceUnavailable:
			failure.Err, failure.Hint = errors.New("the engine behind the server does not answer"), "see the server's log"
			return failure
		case status != http.StatusOK || text != "ready\n":
			return &engine.Error{Op: "ping", Err: fmt.Errorf("the server answers %d %s", status, http.StatusText(status)), Hint: notServer}
		}
		return nil
	})
}

func (s *pingServer) trip(ctx context.Context) error {
	status, text, err := s.get(ctx, http.MethodGet, "/healthz")
	if err == nil && (status != http.StatusOK || text != "alive\n") {
		err = fmt.Errorf("the server answers %d %s", status, http.StatusText(status))
	}
	return err
}

// checks finds out the right of the token. Each request has a mistake, which the server
// finds after the right and before anything else. So the requests change nothing.
func (s *pingServer) checks(ctx context.Context) (version string, list []check) {
	what, right := "use the token", "read"
	if s.token == "" {
		what = "work without a token"
	}
	for _, one := range []struct{ right, path string }{
		{"use", "/v1/semaphores/sema-ping/permits/%20"},
		{"admin", "/v1/semaphores/sema-ping/limit"},
	} {
		status, text, err := s.get(ctx, http.MethodPut, one.path)
		p := problem{}
		_ = json.Unmarshal([]byte(text), &p) // another server's has no type
		switch {
		case err != nil:
			return "", []check{checkOf(what, err)}
		case !strings.HasPrefix(p.Type, "urn:sema:"):
			return "", []check{{"use the API", checkMissing, fmt.Sprintf("the server answers %d %s", status, http.StatusText(status)), notServer}}
		case status == http.StatusUnauthorized:
			return "", []check{{what, checkMissing, p.Detail, "SEMA_SERVER_TOKEN=NAME.SECRET, as the server's token file has them"}}
		case status == http.StatusForbidden && strings.HasSuffix(p.Detail, "this needs "+one.right):
			return "", []check{rightCheck(what, right)}
		case status != http.StatusBadRequest:
			return "", []check{{what, checkMissing, p.Detail, cmp.Or(p.Hint, "see the server's log")}}
		}
		right = one.right
	}
	return "", []check{rightCheck(what, right)}
}

// rightCheck is what a right allows.
func rightCheck(what, right string) check {
	c := check{What: what, State: checkOK}
	switch right {
	case "read":
		c.State, c.Detail, c.Try = checkRisk, `it has the right "read": look, and take no permits`, `a token with the right "use" for sema run`
	case "use":
		c.Detail = `it has the right "use": take permits, and set no limits`
	default:
		c.Detail = `it has the right "admin": take permits, set limits, pause, revoke, remove`
	}
	return c
}

// problem is what a server says when it refuses.
type problem struct {
	Type   string `json:"type"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

// maxPingAnswer bounds what is read of an answer, in bytes.
const maxPingAnswer = 64 << 10

func (s *pingServer) get(ctx context.Context, method, path string) (status int, text string, err error) {
	var body io.Reader
	if method == http.MethodPut {
		body = strings.NewReader(`{"limit":0}`)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	answer, err := s.client.Do(r)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return 0, "", wrapped.Err // without the address
	}
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(answer.Body, maxPingAnswer))
	return answer.StatusCode, string(got), err
}
