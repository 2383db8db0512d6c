package semahttp_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/semahttp"
)

type connKey struct{}

// badUpstream streams its answers, and does with them what upstreams do.
type badUpstream struct {
	judge
	served atomic.Int64
}

func (u *badUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := u.enter(r.Header.Get("Visit"), r.Context().Value(connKey{}).(*net.TCPConn))
	defer u.leave(v)
	u.served.Add(1)
	rc := http.NewResponseController(w)
	piece := strings.Repeat("x", 1000)
	switch r.URL.Path {
	case "/stream":
		for range 5 {
			if _, err := io.WriteString(w, piece); err != nil || rc.Flush() != nil {
				return
			}
			runtime.Gosched()
		}
	case "/whole":
		u.leave(v) // since the last byte of the length that was announced is the end
		w.Header().Set("Content-Length", "3000")
		_, _ = io.WriteString(w, strings.Repeat(piece, 3))
	case "/early":
		w.Header().Set("Content-Length", "3000")
		_, _ = io.WriteString(w, piece)
		_ = rc.Flush()
		u.leave(v)
		panic(http.ErrAbortHandler)
	case "/stall":
		_, _ = io.WriteString(w, piece)
		_ = rc.Flush()
		<-r.Context().Done()
	case "/silence":
		<-r.Context().Done()
	case "/garbage", "/chunks":
		c, rw, err := rc.Hijack()
		if err != nil {
			return
		}
		answer := "HTTP/one point one yes\r\n\r\n"
		if r.URL.Path == "/chunks" {
			answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxyz\r\n"
		}
		u.leave(v)
		_, _ = rw.WriteString(answer)
		_, _ = rw.Flush(), c.Close()
	}
}

// visitBadly sends a request and treats the answer as clients do. It reports how
// that ended.
func visitBadly(j *judge, client *http.Client, url, name string, random *rand.Rand) string {
	kinds := []string{"/stream", "/stream", "/stream", "/whole", "/early", "/stall", "/silence", "/garbage", "/chunks"}
	kind := kinds[random.IntN(len(kinds))]
	ctx, stop := context.WithCancel(context.Background())
	cancel := func() {
		j.giveUp(name)
		stop()
	}
	defer cancel()
	manner := random.IntN(5)
	patient := time.Duration(random.IntN(20000)) * time.Microsecond
	switch {
	case random.IntN(20) == 0: // perhaps while it waits for its permit
		defer time.AfterFunc(patient, cancel).Stop()
	case kind == "/stall" || kind == "/silence" || manner == 0:
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			time.AfterFunc(patient, cancel)
		}})
	case manner == 1: // a context that is not cancelled, or the body would be found by that
		ctx = context.Background()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+kind, nil)
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Visit", name)
	resp, err := client.Do(r)
	if err != nil {
		return "no answer"
	}
	switch manner {
	case 1:
		j.giveUp(name)
		if kind == "/stall" { // nobody would ever end it
			_ = resp.Body.Close()
			return "closed unread"
		}
		return "dropped"
	case 2:
		_, _ = io.ReadFull(resp.Body, make([]byte, 100+random.IntN(2000)))
		j.giveUp(name)
		_ = resp.Body.Close()
		return "closed half read"
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if random.IntN(2) == 0 {
		_ = resp.Body.Close()
	}
	if err != nil {
		return "broken off"
	}
	return "read"
}

func TestNeverMoreThanTheLimitAtTheUpstream(t *testing.T) {
	const limit, requests, workers = 10, 2000, 50
	sem := newSem(t, limit)
	u := &badUpstream{judge: judge{limit: limit, patience: expect.Patience, active: map[*visit]bool{}}}
	server := httptest.NewUnstartedServer(u)
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	server.Start()
	defer server.Close()
	abandoned := atomic.Int64{}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	tr := &semahttp.Transport{Base: base, Limit: by(sem)}
	tr.Observer.Abandoned = func(semahttp.Abandoned) { abandoned.Add(1) }
	client := &http.Client{Transport: tr}

	// All of the limit is used, and no more, when everybody stays.
	staying, leave := context.WithCancel(expect.Within(t))
	var crowd sync.WaitGroup
	for range limit + 5 {
		crowd.Go(func() {
			if resp, err := client.Do(request(t, staying, server.URL+"/stall")); err == nil { // of no name
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	expect.Until(t, "the limit is used up", func() bool { return u.running() == limit && waiters(t, sem) == 5 })
	u.giveUp("")
	leave()
	crowd.Wait()

	stop := make(chan struct{})
	collector := sync.WaitGroup{}
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				runtime.GC() // dropped bodies hold permits until they are found
			}
		}
	})
	var mu sync.Mutex
	ends, jobs := map[string]int{}, make(chan uint64)
	var clients sync.WaitGroup
	for range workers {
		clients.Go(func() {
			for seed := range jobs {
				end := visitBadly(&u.judge, client, server.URL, fmt.Sprint(seed), rand.New(rand.NewPCG(seed, 1)))
				mu.Lock()
				ends[end]++
				mu.Unlock()
			}
		})
	}
	for seed := range uint64(requests) {
		jobs <- seed
	}
	close(jobs)
	clients.Wait()
	collectUntil(t, "everything is given back", func() bool { return used(t, sem) == 0 && waiters(t, sem) == 0 })
	close(stop)
	collector.Wait()
	expect.Until(t, "the upstream is empty", func() bool { return u.running() == 0 })

	t.Logf("%d requests, %d at the upstream, %d at once at most, %d sent before the kernel knew of the last one's end, %d bodies found by the garbage collector; %s",
		requests, u.served.Load()-limit, u.most, u.late, abandoned.Load(), fmt.Sprint(ends))
	if len(u.wrong) > 0 {
		t.Errorf("%d times more than %d ran at the upstream: %q", len(u.wrong), limit, u.wrong[0])
	}
	if u.most != limit {
		t.Errorf("%d ran at once at most, want %d", u.most, limit)
	}
	if u.served.Load() < requests/2 {
		t.Errorf("only %d requests came to the upstream", u.served.Load())
	}
	for _, end := range []string{"read", "broken off", "closed half read", "no answer", "dropped"} {
		if ends[end] == 0 {
			t.Errorf("no request was %s", end)
		}
	}
	if abandoned.Load() == 0 {
		t.Error("no body was found by the garbage collector")
	}
}
