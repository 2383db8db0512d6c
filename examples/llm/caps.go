package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"sema"
	"sema/semahttp"
)

// caps are the limits of a gateway, the same in all gateways of an engine.
type caps struct {
	tenants map[string]int // requests at once, by the tenant's API key
	models  map[string]int // tokens at once, by the model's name
	total   int            // tokens at once, of all models together
	places  int            // requests at once of this gateway while the engine is away
	wait    time.Duration  // for each of the two permits
}

// job is what a request asks for.
type job struct {
	tenant, model string
	tokens        int // at most: of the prompt and of the answer
}

type jobKey struct{}

func jobOf(r *http.Request) job { return r.Context().Value(jobKey{}).(job) }

// handler limits the requests that go to next. The semaphores are in use until close
// is called.
func (c caps) handler(engine sema.Engine, next http.Handler) (h http.Handler, close func(), err error) {
	models, err := sema.New(engine, "llm-tokens", c.total, nil)
	if err != nil {
		return nil, nil, err
	}
	for model, tokens := range c.models {
		if err := models.For(model).Set(context.Background(), sema.KeyRule{Cap: tokens}); err != nil {
			return nil, nil, errors.Join(err, models.Close())
		}
	}
	tenants, err := sema.NewKeys(engine, "llm-tenants", 1, &sema.KeysOptions{LimitOf: func(tenant string) int { return c.tenants[tenant] }})
	if err != nil {
		_ = models.Close() // it was never used
		return nil, nil, err
	}
	limit := func(next http.Handler, by func(*http.Request) semahttp.Limiter) *semahttp.Handler {
		return &semahttp.Handler{
			Next: next, Limit: by, Wait: c.wait,
			Status: http.StatusTooManyRequests, RetryAfterOf: retryAfter, // as clients of such services expect
			Policy: semahttp.FailLocal, Places: c.places,
		}
	}
	weight := func(r *http.Request) int { return jobOf(r).tokens }
	byModel := limit(next, semahttp.PerKeyN(models, func(r *http.Request) string { return jobOf(r).model }, weight))
	// Outside is what isolates: a tenant that waits for itself holds no tokens.
	byTenant := limit(byModel, semahttp.ByKey(func(r *http.Request) string { return jobOf(r).tenant }, tenants.Acquire))
	close = func() {
		_, _ = tenants.Close(), models.Close() // what was held comes back with its lease
	}
	if err := errors.Join(byModel.Check(), byTenant.Check()); err != nil {
		close()
		return nil, nil, err
	}
	return c.read(byTenant), close, nil
}

// retryAfter tells clients when to come again: soon if it was for the engine, and
// later if there is too much to do.
func retryAfter(r semahttp.Refused) time.Duration {
	var outage *sema.EngineError
	if errors.As(r.Err, &outage) {
		return time.Second
	}
	return 5 * time.Second
}

// read finds out what a request asks for.
func (c caps) read(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant := r.Header.Get("Tenant") // a real gateway looks up the API key
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		var asked struct {
			Model     string `json:"model"`
			MaxTokens int    `json:"max_tokens"`
		}
		switch {
		case c.tenants[tenant] == 0:
			http.Error(w, "no such tenant", http.StatusUnauthorized)
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
		r = r.WithContext(context.WithValue(r.Context(), jobKey{}, job{tenant, asked.Model, prompt + asked.MaxTokens}))
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
