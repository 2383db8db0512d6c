package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"sema"
	"sema/outage"
	"sema/semahttp"
)

// caps are the limits of a gateway, the same in all gateways of an engine.
type caps struct {
	name          string         // of the semaphores: name/model
	organisations []string       // those that are known
	models        map[string]int // tokens at once, by the model's name
	each          sema.Caps      // tokens at once of each model: for an organisation, and for a user of one; 0: all
	blind         bool           // to organisations: first come, first served
	lease         time.Duration  // 0: sema's
	places        int            // requests at once of this gateway while the engine is away
	wait          time.Duration  // for a permit
	answer        time.Duration  // so long the engine may say nothing until it counts as away; 0: 100 ms
}

// job is what a request asks for.
type job struct {
	organisation, user, model string
	tokens                    int // at most: of the prompt and of the answer
}

type jobKey struct{}

func jobOf(r *http.Request) job { return r.Context().Value(jobKey{}).(job) }

// handler limits the requests that go to next. The engine may be away: nothing is asked before
// the first request. A gateway that stops calls shutdown beside that of its http.Server: waiting
// and new requests get 503, and streams go on to their end, or until ctx ends.
func (c caps) handler(engine sema.Engine, next http.Handler) (h http.Handler, shutdown func(ctx context.Context), err error) {
	models := map[string]*sema.Semaphore{}
	shutdown = func(ctx context.Context) {
		var all sync.WaitGroup
		for _, s := range models {
			all.Go(func() { _ = s.Shutdown(ctx) }) // what is held then comes back all the same
		}
		all.Wait()
	}
	for model, tokens := range c.models {
		if models[model], err = sema.New(engine, c.name+"/"+model, tokens, &sema.Options{Caps: c.each, Lease: c.lease}); err != nil {
			delete(models, model)
			shutdown(context.Background())
			return nil, nil, err
		}
	}
	limited := &semahttp.Handler{
		Next: next, Wait: c.wait,
		Limit: func(r *http.Request) semahttp.Limiter {
			j := jobOf(r)
			if c.blind {
				return semahttp.Of(models[j.model], sema.Weight(j.tokens))
			}
			return semahttp.Of(models[j.model], sema.For(j.organisation, j.user), sema.Weight(j.tokens))
		},
		Status: http.StatusTooManyRequests, RetryAfterOf: retryAfter, // as clients of such services expect
		Outage: outage.Local(c.places, 0).After(c.answer),
	}
	if err := limited.Check(); err != nil {
		shutdown(context.Background())
		return nil, nil, err
	}
	return c.read(limited), shutdown, nil
}

// retryAfter tells clients when to come again: soon if it was for the engine, and
// later if there is too much to do.
func retryAfter(r semahttp.Refused) time.Duration {
	if errors.Is(r.Err, sema.ErrEngine) {
		return time.Second
	}
	return 5 * time.Second
}

// read finds out what a request asks for.
func (c caps) read(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		organisation, user := r.Header.Get("Organisation"), r.Header.Get("User") // a real gateway looks up the API key
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		var asked struct {
			Model     string `json:"model"`
			MaxTokens int    `json:"max_tokens"`
		}
		switch {
		case !slices.Contains(c.organisations, organisation) || user == "":
			http.Error(w, "no such user", http.StatusUnauthorized)
			return
		case err != nil:
			http.Error(w, "the request is too large, or broke off", http.StatusRequestEntityTooLarge)
			return
		case json.Unmarshal(body, &asked) != nil || asked.MaxTokens < 1:
			http.Error(w, "the request is no JSON with max_tokens", http.StatusBadRequest)
			return
		case c.models[asked.Model] == 0:
			http.Error(w, "no such model", http.StatusNotFound)
			return
		}
		prompt := len(body) / 4 // about four bytes are a token
		r = r.WithContext(context.WithValue(r.Context(), jobKey{}, job{organisation, user, asked.Model, prompt + asked.MaxTokens}))
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
