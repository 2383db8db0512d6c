package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
		most := ""
		if atOnce > 1 {
			most = fmt.Sprintf(", %d at once", service.requests.Most())
		}
		fmt.Fprintf(out, "%s: %d answers%s, %d refused by the service\n", what, answers, most, service.refused.Swap(0))
		return err
	}
	status := func(what string, at *served, r request) error {
		resp, err := r.send(ctx, at.URL, "")
		if err != nil {
			return err
		}
		if resp.StatusCode == http.StatusTooManyRequests {
			resp.Status += ", Retry-After " + resp.Header.Get("Retry-After") + ", position " + cmp.Or(resp.Header.Get("X-Queue-Position"), "none")
		}
		fmt.Fprintf(out, "%s: %s\n", what, resp.Status)
		return resp.Body.Close()
	}

	for _, c := range []struct {
		what     string
		atOnce   int
		requests []request
	}{
		{"alice of acme, 2 at once", 2, []request{{"acme", "alice", "large", 250, 8}}},
		{"all of acme, 3 at once", 3, []request{{"acme", "", "large", 250, 8}}},
		{"all organisations, 4 at once", 4, []request{{"acme", "", "large", 250, 8}, {"globex", "", "large", 250, 8}}},
		{"small, 20 where the service takes 24 a second", 1, []request{{"acme", "", "small", 40, 10}, {"globex", "", "small", 40, 10}}},
		{"small, 8 of at most 500 tokens, of 1000 an hour", 1, []request{{"acme", "", "small", 500, 8}}},
	} {
		if err := crowd(front, c.what, c.atOnce, c.requests...); err != nil {
			return err
		}
	}

	// Streams fill the model; a further request is refused.
	service.await(4)
	streaming, leave := context.WithCancel(ctx)
	defer leave()
	for i, organisation := range []string{"acme", "acme", "globex", "globex"} {
		resp, err := request{organisation, fmt.Sprint("user ", i), "large", 300, 1}.send(streaming, front.URL, "yes")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
	}
	if err := status("large, while 4 stream", busy, request{"initech", "erin", "large", 300, 1}); err != nil {
		return err
	}
	leave() // in the middle of an answer
	service.await(1)
	if err := status("large, when they have left", front, request{"initech", "erin", "large", 300, 1}); err != nil {
		return err
	}
	if err := status("30000 tokens of 20000 at once", front, request{"globex", "dave", "large", 30000, 1}); err != nil {
		return err
	}
	service.busy.Store(true) // for one answer, and then it wants a second of rest
	if err := status("large, when the service says 429", front, request{"globex", "dave", "large", 300, 1}); err != nil {
		return err
	}
	service.refused.Store(0)
	if err := crowd(front, "large, a second later by itself", 1, request{"globex", "", "large", 300, 4}); err != nil {
		return err
	}
	return crowd(alone, "without its engine, 3 requests at once", 3, request{"globex", "", "large", 300, 5}, request{"initech", "", "large", 300, 5})
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

// upstream stands in for a vendor's service: it streams its answers, and counts how many requests it has at once. It refuses
// what is more than 24 requests of a model within a second, or comes within a second after it has said so.
type upstream struct {
	requests *gauge.Gauge
	refused  atomic.Int64 // answers of 429
	busy     atomic.Bool  // it refuses the next request

	mu    sync.Mutex
	came  map[string][]time.Time // by model
	until time.Time              // it refuses all
}

func newUpstream() *upstream {
	return &upstream{requests: gauge.New(1), came: map[string][]time.Time{}}
}

// await begins to count anew: each answer takes until n requests are there at once.
func (u *upstream) await(n int) { u.requests.Await(n) }

// takes reports whether a request is within the service's own limits.
func (u *upstream) takes(model string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	came := slices.DeleteFunc(u.came[model], func(t time.Time) bool { return now.Sub(t) >= time.Second })
	u.came[model] = append(came, now)
	if u.busy.Swap(false) || len(came) >= 24 && model == "small" || now.Before(u.until) {
		u.until = now.Add(time.Second)
		return false
	}
	return true
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		Model     string `json:"model"`
		MaxTokens int    `json:"max_tokens"`
	}
	switch {
	case err != nil || json.Unmarshal(body, &asked) != nil:
		http.Error(w, "no request", http.StatusBadRequest)
		return
	case !u.takes(asked.Model):
		u.refused.Add(1)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many", http.StatusTooManyRequests)
		return
	}
	defer u.requests.Enter(1)()
	w.Header().Set("Content-Type", "text/event-stream")
	out, flush := io.Writer(w), http.NewResponseController(w).Flush
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		out, flush = z, func() error { return errors.Join(z.Flush(), http.NewResponseController(w).Flush()) }
	}
	_, _ = fmt.Fprint(out, "data: the first token\n\n")
	_ = flush()
	u.requests.Full(r.Context())
	if r.Header.Get("Endless") != "" {
		<-r.Context().Done()
		return
	}
	_, _ = fmt.Fprintf(out, "data: the last token\n\ndata: {\"usage\":{\"total_tokens\": %d}}\n\n", (len(body)/4+asked.MaxTokens)/20)
}
