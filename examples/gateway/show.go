package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"sema"
)

// show runs a gateway before a service of its own, and clients of it.
func show(ctx context.Context, engine sema.Engine, caps map[string]int, out io.Writer) error {
	service := newUpstream(caps)
	behind := httptest.NewServer(service)
	defer behind.Close()
	target, err := url.Parse(behind.URL)
	if err != nil {
		return err
	}
	patient, err := newGateway(engine, target, caps, time.Minute)
	if err != nil {
		return err
	}
	defer patient.close()
	brisk, err := newGateway(engine, target, caps, 50*time.Millisecond)
	if err != nil {
		return err
	}
	defer brisk.close()
	front, busy := httptest.NewServer(patient), httptest.NewServer(brisk)
	defer front.Close()
	defer busy.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections() // the gateways' and ours

	models := slices.Sorted(maps.Keys(caps))
	for _, name := range models {
		answers, err := crowd(ctx, front.URL, name, 4*caps[name])
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %d answers of %d tokens, %d at once of %d\n", name, answers, tokens, service.models[name].most(), caps[name])
	}
	// Streams fill the first model's cap; a further request is refused.
	name := models[0]
	streaming, leave := context.WithCancel(ctx)
	defer leave()
	var streams []*http.Response
	for range caps[name] {
		resp, err := ask(streaming, front.URL, name, true)
		if err != nil {
			return err
		}
		streams = append(streams, resp)
	}
	resp, err := ask(ctx, busy.URL, name, false)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, while %d stream: %s, Retry-After %s, position %s\n", name, len(streams), resp.Status,
		resp.Header.Get("Retry-After"), resp.Header.Get("X-Queue-Position"))
	_ = resp.Body.Close()

	leave() // in the middle of an answer
	for _, s := range streams {
		_ = s.Body.Close()
	}
	answers, err := crowd(ctx, front.URL, name, 1)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, when they have left: %d answer\n", name, answers)
	resp, err = ask(ctx, front.URL, "unknown", false)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "unknown: %s\n", resp.Status)
	return resp.Body.Close()
}

// crowd sends n requests at once and counts whole answers.
func crowd(ctx context.Context, at, model string, n int) (answers int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			got, e := count(ctx, at, model)
			mu.Lock()
			defer mu.Unlock()
			if e != nil {
				err = e
			} else if got == tokens {
				answers++
			}
		})
	}
	wg.Wait()
	return answers, err
}

// count is how many tokens an answer has.
func count(ctx context.Context, at, model string) (n int, err error) {
	resp, err := ask(ctx, at, model, false)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", model, resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			n++
		}
	}
	return n, lines.Err()
}

// ask sends a request as clients of language models do.
func ask(ctx context.Context, at, model string, endless bool) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"model": model, "stream": true, "endless": endless})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(r)
}
