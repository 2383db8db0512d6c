package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"sema"
	"sema/admit"
	"sema/semahttp"
)

// limits are those of a gateway, the same in all gateways of an engine.
type limits struct {
	organisations []string // those that are known
	models        map[string]model
	caps          sema.Caps     // requests at once of each model: for an organisation, and for a user of one
	places        int           // requests at once of this gateway while the engine is away
	wait          time.Duration // for a permit
}

// model is what a vendor allows.
type model struct {
	atOnce int        // requests
	rates  sema.Pools // rpm: requests, tpm: tokens
}

// gateway limits the requests to a vendor's service.
type gateway struct {
	limits
	semaphores map[string]*sema.Semaphore // by model
	limited    *semahttp.Handler
}

// job is what a request asks for.
type job struct {
	organisation, user, model string
	tokens                    int // at most: of the prompt and of the answer
}

type jobKey struct{}

// newGateway asks the engine nothing, which may be away.
func newGateway(engine sema.Engine, vendor *url.URL, l limits) (*gateway, error) {
	g := &gateway{limits: l, semaphores: map[string]*sema.Semaphore{}}
	for name, m := range l.models {
		sem, err := sema.New(engine, "llm/"+name, m.atOnce, &sema.Options{Caps: l.caps, Pools: m.rates})
		if err != nil {
			g.close()
			return nil, err
		}
		g.semaphores[name] = sem
	}
	g.limited = &semahttp.Handler{
		Next: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(vendor)
				r.Out.Header.Del("Accept-Encoding") // or settle would look for tokens in compressed bytes
			},
			FlushInterval:  -1, // a token leaves when it comes
			ModifyResponse: settle,
		},
		Limit: func(r *http.Request) semahttp.Limiter {
			j := r.Context().Value(jobKey{}).(job)
			return semahttp.Of(g.semaphores[j.model], sema.For(j.organisation, j.user), sema.Take("rpm", 1), sema.Take("tpm", j.tokens))
		},
		Wait:   l.wait,
		Status: http.StatusTooManyRequests, RetryAfterOf: retryAfter, Position: "X-Queue-Position", // as clients of such services expect
		Outage: admit.Local(l.places, 0),
	}
	if err := g.limited.Check(); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// settle tells all gateways when the vendor wants the next request, and how many tokens this one has used.
func settle(answer *http.Response) error {
	if p := sema.PermitFrom(answer.Request.Context()); p != nil { // nil: the engine is away
		p.RetryAfter(semahttp.RetryAfter(answer))
	}
	semahttp.Settle(answer, used)
	return nil
}

var total = regexp.MustCompile(`"total_tokens": ?([0-9]+)`)

// used finds at the end of an answer what it has used. What is refused costs nothing.
func used(answer *http.Response, end []byte) map[string]int {
	if answer.StatusCode != http.StatusOK {
		return map[string]int{"tpm": 0}
	}
	if all := total.FindAllSubmatch(end, -1); all != nil {
		if n, err := strconv.Atoi(string(all[len(all)-1][1])); err == nil {
			return map[string]int{"tpm": n}
		}
	}
	return nil
}

// retryAfter tells clients when to come again: soon if the engine was away, and later if there is too much to do.
func retryAfter(r semahttp.Refused) time.Duration {
	if errors.Is(r.Err, sema.ErrEngine) {
		return time.Second
	}
	return 5 * time.Second
}

// ServeHTTP finds out what a request asks for.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	organisation, user := r.Header.Get("Organisation"), r.Header.Get("User") // a real gateway looks up the API key
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	var asked struct {
		Model     string `json:"model"`
		MaxTokens int    `json:"max_tokens"`
	}
	switch {
	case !slices.Contains(g.organisations, organisation) || user == "":
		http.Error(w, "no such user", http.StatusUnauthorized)
		return
	case err != nil:
		http.Error(w, "the request is too large, or broke off", http.StatusRequestEntityTooLarge)
		return
	case json.Unmarshal(body, &asked) != nil || asked.MaxTokens < 1:
		http.Error(w, "the request is no JSON with max_tokens", http.StatusBadRequest)
		return
	case g.semaphores[asked.Model] == nil:
		http.Error(w, "no such model", http.StatusNotFound)
		return
	}
	prompt := len(body) / 4                       // about four bytes are a token
	asked.MaxTokens = min(asked.MaxTokens, 1<<30) // more than any pool has
	r = r.WithContext(context.WithValue(r.Context(), jobKey{}, job{organisation, user, asked.Model, prompt + asked.MaxTokens}))
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.limited.ServeHTTP(w, r)
}

// shutdown answers waiting and new requests with 503. Answers that stream go on to their last token, or until ctx ends.
func (g *gateway) shutdown(ctx context.Context, server *http.Server) error {
	var all sync.WaitGroup
	for _, sem := range g.semaphores {
		all.Go(func() { _ = sem.Shutdown(ctx) }) // ctx ends for the server as well
	}
	err := server.Shutdown(ctx)
	all.Wait()
	return err
}

func (g *gateway) close() {
	for _, sem := range g.semaphores {
		_ = sem.Close() // everything has been given back by then
	}
}
