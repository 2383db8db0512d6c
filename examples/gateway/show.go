package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"sema"
	"sema/examples/internal/engines"
	"sema/examples/internal/gauge"
)

// show runs gateways before a service of its own, and clients of them.
func show(ctx context.Context, engine sema.Engine, out io.Writer) error {
	service := newUpstream()
	behind := httptest.NewServer(service)
	defer behind.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections() // the gateways' and ours
	hurried := ours
	hurried.wait = 50 * time.Millisecond
	nowhere, end, err := engines.Open("127.0.0.1:1")
	if err != nil {
		return err
	}
	defer end()
	front, err1 := begin(engine, behind.URL, ours)
	busy, err2 := begin(engine, behind.URL, hurried)
	alone, err3 := begin(nowhere, behind.URL, ours)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err // and the program ends
	}
	defer front.end()
	defer busy.end()
	defer alone.end()

	// crowd sends requests at once, and tells what came of it.
	crowd := func(at *served, what string, atOnce int, requests ...request) error {
		service.await(atOnce)
		answers, err := all(ctx, at.URL, requests)
		fmt.Fprintf(out, "%s: %d answers, %d requests of %d tokens at once\n", what, answers, service.requests.Most(), service.tokens.Most())
		return err
	}
	status := func(what string, at *served, r request) error {
		resp, err := r.send(ctx, at.URL, "")
		if err != nil {
			return err
		}
		if resp.StatusCode == http.StatusTooManyRequests {
			resp.Status += ", Retry-After " + resp.Header.Get("Retry-After") + ", position " + resp.Header.Get("X-Queue-Position")
		}
		fmt.Fprintf(out, "%s: %s\n", what, resp.Status)
		return resp.Body.Close()
	}

	for _, c := range []struct {
		what     string
		atOnce   int
		requests []request
	}{
		{"alice of acme, 500 tokens of large at once", 2, []request{{"acme", "alice", "large", 250, 8}}},
		{"all of acme, 750 tokens of large", 3, []request{{"acme", "", "large", 250, 8}}},
		{"all organisations, 1000 tokens of large", 4, []request{{"acme", "", "large", 250, 8}, {"globex", "", "large", 250, 8}}},
	} {
		if err := crowd(front, c.what, c.atOnce, c.requests...); err != nil {
			return err
		}
	}

	// Streams fill the model; a further request is refused.
	service.await(3)
	streaming, leave := context.WithCancel(ctx)
	defer leave()
	for i, organisation := range []string{"acme", "globex", "globex"} {
		resp, err := request{organisation, fmt.Sprint("user ", i), "large", 300, 1}.send(streaming, front.URL, "yes")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
	}
	if err := status("large, while 3 stream", busy, request{"initech", "erin", "large", 300, 1}); err != nil {
		return err
	}
	leave() // in the middle of an answer
	service.await(1)
	if err := status("large, when they have left", front, request{"initech", "erin", "large", 300, 1}); err != nil {
		return err
	}
	if err := status("2000 tokens of 1000", front, request{"globex", "dave", "large", 2000, 1}); err != nil {
		return err
	}
	return crowd(alone, "without its engine, 3 requests at once", 3, request{"globex", "", "large", 300, 9}, request{"initech", "", "small", 300, 9})
}

// served is a gateway at an address of its own.
type served struct {
	*httptest.Server
	gateway *gateway
}

func begin(engine sema.Engine, vendor string, l limits) (*served, error) {
	target, err := url.Parse(vendor)
	if err != nil {
		return nil, err
	}
	g, err := newGateway(engine, target, l)
	if err != nil {
		return nil, err
	}
	return &served{httptest.NewServer(g), g}, nil
}

func (s *served) end() {
	s.Close()
	s.gateway.close()
}

// request is so many requests of an organisation to a model: of a user of it, or of four users in
// turn. The tokens are those of the prompt and of the longest answer.
type request struct {
	organisation, user, model string
	tokens, n                 int
}

// all sends requests at once, and counts whole answers.
func all(ctx context.Context, at string, requests []request) (answers int, err error) {
	type answer struct {
		text string
		err  error
	}
	answered, sent := make(chan answer), 0
	for _, r := range requests {
		for i := range r.n {
			one := r
			if r.user == "" {
				one.user = fmt.Sprint("user ", i%4)
			}
			go func() { text, err := one.read(ctx, at); answered <- answer{text, err} }()
			sent++
		}
	}
	for range sent {
		a := <-answered
		err = errors.Join(err, a.err)
		if strings.Contains(a.text, "last token") {
			answers++
		}
	}
	return answers, err
}

func (r request) read(ctx context.Context, at string) (string, error) {
	resp, err := r.send(ctx, at, "")
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// send sends one request as clients of language models do, with a prompt of 25 tokens.
func (r request) send(ctx context.Context, at, endless string) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"model": r.model, "stream": true, "max_tokens": r.tokens - 25})
	if err != nil {
		return nil, err
	}
	body = append(body, bytes.Repeat([]byte(" "), 100-len(body))...)
	sent, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	sent.Header.Set("Organisation", r.organisation)
	sent.Header.Set("User", r.user)
	sent.Header.Set("Endless", endless)
	return http.DefaultClient.Do(sent)
}

// upstream stands in for a vendor's service: it streams its answers, and counts how many requests, and tokens of
// theirs, it has at once.
type upstream struct{ requests, tokens *gauge.Gauge }

func newUpstream() *upstream { return &upstream{gauge.New(1), gauge.New(1)} }

// await begins to count anew: each answer takes until n requests are there at once.
func (u *upstream) await(n int) {
	u.requests.Await(n)
	u.tokens.Await(0)
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		MaxTokens int `json:"max_tokens"`
	}
	if err != nil || json.Unmarshal(body, &asked) != nil {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	defer u.tokens.Enter(len(body)/4 + asked.MaxTokens)()
	defer u.requests.Enter(1)()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, "data: the first token\n\n")
	_ = http.NewResponseController(w).Flush()
	u.requests.Full(r.Context())
	if r.Header.Get("Endless") != "" {
		<-r.Context().Done()
		return
	}
	_, _ = fmt.Fprint(w, "data: the last token\n\n")
}
