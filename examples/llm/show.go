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
		name:          "llm",
		organisations: []string{"acme", "globex", "initech"},
		models:        map[string]int{"large": 1000, "small": 1000},
		each:          sema.Caps{750, 500},
		places:        3,
		wait:          time.Minute,
		answer:        3 * time.Second, // a busy machine is no outage
	}
	patient, end, err := c.handler(engine, service)
	if err != nil {
		return err
	}
	defer end(context.Background())
	hurried := c
	hurried.wait = 50 * time.Millisecond
	brisk, end, err := hurried.handler(engine, service)
	if err != nil {
		return err
	}
	defer end(context.Background())
	front, busy := httptest.NewServer(patient), httptest.NewServer(brisk)
	defer front.Close()
	defer busy.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	// crowd sends what each organisation asks for at once, and tells what came of it.
	crowd := func(what string, atOnce int, requests ...request) error {
		service.await(atOnce)
		answers, err := all(ctx, front.URL, requests)
		n, tokens := service.counted()
		fmt.Fprintf(out, "%s: %d answers, %d requests of %d tokens at once\n", what, answers, n, tokens)
		return err
	}
	if err := crowd("alice of acme, 500 tokens of large at once", 2, request{"acme", "alice", "large", 250, 8}); err != nil {
		return err
	}
	if err := crowd("all of acme, 750 tokens of large", 3, request{"acme", "", "large", 250, 8}); err != nil {
		return err
	}
	if err := crowd("all organisations, 1000 tokens of large", 4, request{"acme", "", "large", 250, 8}, request{"globex", "", "large", 250, 8}); err != nil {
		return err
	}
	if err := crowd("large and small, each its own", 8, request{"acme", "", "large", 250, 6}, request{"globex", "", "large", 250, 6},
		request{"acme", "", "small", 250, 6}, request{"globex", "", "small", 250, 6}); err != nil {
		return err
	}
	for _, how := range []string{"first come, first served", "with shares"} {
		flooded := c
		flooded.lease = 3 * time.Second // a sixth of it passes until the engine knows how many wait in a gateway
		flooded.each, flooded.blind, flooded.name = sema.Caps{}, how != "with shares", "llm "+how
		service.await(1)
		if err := flooded.flood(ctx, engine, service, how, out); err != nil {
			return err
		}
	}

	// Streams fill the model's cap; a further request is refused.
	service.await(3)
	streaming, leave := context.WithCancel(ctx)
	defer leave()
	var streams []*http.Response
	for i := range 3 {
		resp, err := request{[]string{"acme", "globex", "globex"}[i], fmt.Sprint("user ", i), "large", 300, 1}.send(streaming, front.URL, "yes")
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
	if err := status("large, while 3 stream", busy.URL, request{"initech", "erin", "large", 300, 1}); err != nil {
		return err
	}
	leave() // in the middle of an answer
	for _, s := range streams {
		_ = s.Body.Close()
	}
	service.await(1)
	if err := status("large, when they have left", front.URL, request{"initech", "erin", "large", 300, 1}); err != nil {
		return err
	}
	if err := status("2000 tokens of 1000", front.URL, request{"globex", "dave", "large", 2000, 1}); err != nil {
		return err
	}
	defer fail()()
	return crowd("without its engine, 3 requests at once", 3, request{"globex", "", "large", 300, 9}, request{"initech", "", "small", 300, 9})
}

// flood has acme fill a model and its queue, and tells for how many answers the others
// wait then.
func (c caps) flood(ctx context.Context, engine sema.Engine, service http.Handler, how string, out io.Writer) error {
	const requests, atOnce = 40, 4
	h, end, err := c.handler(engine, service)
	if err != nil {
		return err
	}
	defer end(context.Background())
	front := httptest.NewServer(h)
	defer front.Close()
	operator, err := sema.Operate(engine, c.name+"/large")
	if err != nil {
		return err
	}
	defer func() { _ = operator.Close() }() // it only looked
	ctx, leave := context.WithTimeout(ctx, time.Minute)
	var all sync.WaitGroup
	defer all.Wait()
	defer leave()
	type stream struct {
		organisation string
		resp         *http.Response
		err          error
	}
	began := make(chan stream, requests+2)
	send := func(organisation string) {
		all.Go(func() {
			resp, err := request{organisation, "alice", "large", 250, 1}.send(ctx, front.URL, "yes")
			if err == nil {
				context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
			}
			began <- stream{organisation, resp, err}
		})
	}
	waiting := func(n int) error {
		for {
			state, err := operator.State(ctx)
			switch {
			case errors.Is(err, sema.ErrNotFound): // nobody has used it yet
			case err != nil || state.Waiting() == n:
				return err
			}
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	for range requests {
		send("acme")
	}
	if err := waiting(requests - atOnce); err != nil {
		return err
	}
	for i, organisation := range []string{"globex", "initech"} {
		send(organisation)
		if err := waiting(requests - atOnce + i + 1); err != nil {
			return err
		}
	}
	answers, told := 0, []string{}
	for running := []stream{}; len(told) < 2; {
		if len(running) == atOnce { // one is told its last token
			answers++
			_ = running[0].resp.Body.Close()
			running = running[1:]
		}
		s := <-began
		if s.err != nil {
			return s.err
		}
		running = append(running, s)
		if s.organisation != "acme" {
			told = append(told, fmt.Sprintf("%s begins after %d", s.organisation, answers))
		}
	}
	fmt.Fprintf(out, "acme floods large with %d requests, %s: %s answers\n", requests, how, strings.Join(told, ", "))
	return nil
}

// request is so many requests of an organisation to a model: of a user of it, or of four users in
// turn. The tokens are those of the prompt and of the longest answer.
type request struct {
	organisation, user, model string
	tokens, n                 int
}

// all sends requests at once, and counts whole answers.
func all(ctx context.Context, at string, requests []request) (answers int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, r := range requests {
		for i := range r.n {
			one := r
			if r.user == "" {
				one.user = fmt.Sprint("user ", i%4)
			}
			wg.Go(func() {
				whole, e := one.whole(ctx, at)
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
	sent.Header.Set("Organisation", r.organisation)
	sent.Header.Set("User", r.user)
	sent.Header.Set("Endless", endless)
	return http.DefaultClient.Do(sent)
}
