package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// upstream stands in for a service of language models: it streams its answers, and
// counts how many requests, and tokens of theirs, it has at once.
type upstream struct {
	mu           sync.Mutex
	now, tokens  int
	most, mostOf int           // at once so far
	crowd        int           // so many are awaited
	there        chan struct{} // closed when they are there
}

func newUpstream() *upstream {
	u := &upstream{}
	u.await(1)
	return u
}

// await begins to count anew: each answer takes until n requests are there at once.
func (u *upstream) await(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.most, u.mostOf, u.crowd, u.there = u.now, u.tokens, n, make(chan struct{})
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	there := u.enter(1, jobOf(r).tokens)
	defer u.enter(-1, -jobOf(r).tokens)
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, "data: the first token\n\n")
	_ = http.NewResponseController(w).Flush()
	select {
	case <-there:
	case <-r.Context().Done():
		return
	case <-time.After(10 * time.Second): // the crowd may not come: then the counts tell
	}
	if r.Header.Get("Endless") != "" {
		<-r.Context().Done()
		return
	}
	_, _ = fmt.Fprint(w, "data: the last token\n\n")
}

func (u *upstream) enter(n, tokens int) (there chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now += n
	u.tokens += tokens
	u.most, u.mostOf = max(u.most, u.now), max(u.mostOf, u.tokens)
	if n > 0 && u.now >= u.crowd {
		select {
		case <-u.there:
		default:
			close(u.there)
		}
	}
	return u.there
}

// counted is how many requests, and tokens, were there at once.
func (u *upstream) counted() (requests, tokens int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.most, u.mostOf
}
