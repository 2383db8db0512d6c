package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"sema"
	"sema/outage"
	"sema/semahttp"
)

// maxRequest bounds what is read to find the model.
const maxRequest = 1 << 20

// gateway limits requests by the model that they ask for.
type gateway struct {
	models  map[string]*sema.Semaphore
	limited *semahttp.Handler
}

type modelKey struct{}

func newGateway(engine sema.Engine, upstream *url.URL, caps map[string]int, wait time.Duration) (*gateway, error) {
	g := &gateway{models: map[string]*sema.Semaphore{}}
	for model, n := range caps {
		sem, err := sema.New(engine, "model:"+model, n, nil)
		if err != nil {
			g.close()
			return nil, err
		}
		g.models[model] = sem
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		FlushInterval: -1, // a token leaves when it comes
	}
	g.limited = &semahttp.Handler{
		Next: proxy,
		Limit: func(r *http.Request) semahttp.Limiter {
			return semahttp.Of(r.Context().Value(modelKey{}).(*sema.Semaphore))
		},
		Wait:     wait,
		Status:   http.StatusTooManyRequests, // as clients of such services expect
		Position: "X-Queue-Position",
		// Without the engine, one request of each model from each gateway. A busy machine is no outage.
		Outage: outage.Local(len(caps), 1).After(3 * time.Second),
	}
	if err := g.limited.Check(); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// ServeHTTP finds out which model is asked for.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the request is too large, or broke off", http.StatusRequestEntityTooLarge)
		return
	}
	var asked struct {
		Model string `json:"model"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		http.Error(w, "the request is not JSON", http.StatusBadRequest)
		return
	}
	sem := g.models[asked.Model]
	if sem == nil {
		http.Error(w, "no such model", http.StatusNotFound)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), modelKey{}, sem))
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.limited.ServeHTTP(w, r)
}

// shutdown answers waiting and new requests with 503. Answers that stream go on to
// their last token, or until ctx ends.
func (g *gateway) shutdown(ctx context.Context, server *http.Server) error {
	var all sync.WaitGroup
	for _, sem := range g.models {
		all.Go(func() { _ = sem.Shutdown(ctx) }) // ctx ends for the server as well
	}
	err := server.Shutdown(ctx)
	all.Wait()
	return err
}

func (g *gateway) close() {
	for _, sem := range g.models {
		_ = sem.Close() // everything has been given back by then
	}
}
