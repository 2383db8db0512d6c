package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"sema"
)

// show runs a gateway before a service of its own, and clients of it. In the end
// the engine fails: fail begins that, and what it returns ends it.
func show(ctx context.Context, engine sema.Engine, fail func() (end func()), out io.Writer) error {
	service := newUpstream()
	c := caps{
		tenants: map[string]int{"acme": 2, "globex": 50, "initech": 50},
		models:  map[string]int{"large": 1000, "small": 1000},
		total:   1500,
		places:  3,
		wait:    time.Minute,
	}
	patient, end, err := c.handler(engine, service)
	if err != nil {
		return err
	}
	defer end()
	c.wait = 50 * time.Millisecond
	brisk, end, err := c.handler(engine, service)
	if err != nil {
		return err
	}
	defer end()
	front, busy := httptest.NewServer(patient), httptest.NewServer(brisk)
	defer front.Close()
	defer busy.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	// crowd sends what each tenant asks for at once, and tells what came of it.
	crowd := func(what string, atOnce int, requests ...request) error {
		service.await(atOnce)
		answers, err := all(ctx, front.URL, requests)
		n, tokens := service.counted()
		fmt.Fprintf(out, "%s: %d answers, %d requests of %d tokens at once\n", what, answers, n, tokens)
		return err
	}
	if err := crowd("acme, 2 requests at once", 2, request{"acme", "large", 100, 8}); err != nil {
		return err
	}
	if err := crowd("large, 1000 tokens at once", 3, request{"globex", "large", 300, 6}, request{"initech", "large", 300, 6}); err != nil {
		return err
	}
	if err := crowd("in all, 1500 tokens at once", 5, request{"globex", "large", 300, 6}, request{"initech", "small", 300, 6}); err != nil {
		return err
	}

	// Streams hold what the model may have; a further request is told so.
	service.await(3)
	streaming, leave := context.WithCancel(ctx)
	defer leave()
	var streams []*http.Response
	for range 3 {
		resp, err := request{"globex", "large", 300, 1}.send(streaming, front.URL, "yes")
		if err != nil {
			return err
		}
		streams = append(streams, resp)
	}
	status := func(what, at string, r request) error {
		resp, err := r.send(ctx, at, "")
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s", what, resp.Status)
		if after := resp.Header.Get("Retry-After"); after != "" {
			fmt.Fprintf(out, ", Retry-After %s", after)
		}
		fmt.Fprintln(out)
		return resp.Body.Close()
	}
	if err := status("large, while 3 stream", busy.URL, request{"initech", "large", 300, 1}); err != nil {
		return err
	}
	leave() // in the middle of an answer
	for _, s := range streams {
		_ = s.Body.Close()
	}
	service.await(1)
	if err := status("large, when they have left", front.URL, request{"initech", "large", 300, 1}); err != nil {
		return err
	}
	if err := status("2000 tokens of 1000", front.URL, request{"globex", "large", 2000, 1}); err != nil {
		return err
	}
	defer fail()()
	return crowd("without its engine, 3 requests at once", 3, request{"globex", "large", 300, 9}, request{"initech", "small", 300, 9})
}

// request is so many requests of a tenant to a model. The tokens are those of the
// prompt and of the longest answer.
type request struct {
	tenant, model string
	tokens, n     int
}

// all sends requests at once, and counts whole answers.
func all(ctx context.Context, at string, requests []request) (answers int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, r := range requests {
		for range r.n {
			wg.Go(func() {
				whole, e := r.whole(ctx, at)
				mu.Lock()
				defer mu.Unlock()
				if e != nil {
					err = e
				} else if whole {
					answers++
				}
			})
		}
	}
	wg.Wait()
	return answers, err
}

func (r request) whole(ctx context.Context, at string) (bool, error) {
	resp, err := r.send(ctx, at, "")
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	text, err := io.ReadAll(resp.Body)
	return strings.Contains(string(text), "last token"), err
}

// send sends one request as clients of language models do, with a prompt of a
// hundred tokens at the most.
func (r request) send(ctx context.Context, at, endless string) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"model": r.model, "stream": true, "max_tokens": r.tokens - 25})
	if err != nil {
		return nil, err
	}
	body = append(body, bytes.Repeat([]byte(" "), 100-len(body))...) // 25 tokens
	sent, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	sent.Header.Set("Content-Type", "application/json")
	sent.Header.Set("Tenant", r.tenant)
	sent.Header.Set("Endless", endless)
	return http.DefaultClient.Do(sent)
}
