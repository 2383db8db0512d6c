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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// judge counts the requests that run at an upstream at the same time. A request
// that its client gave up before the next one came runs no more, though its
// handler may not have noticed yet: the kernel knows whether the client has
// closed the connection, and has a moment to learn it.
type judge struct {
	limit    int
	patience time.Duration
	given    sync.Map // names of requests that their clients have begun to give up

	mu     sync.Mutex
	active map[*visit]bool
	most   int
	late   int // times that a request came before the kernel knew that the last one was gone
	wrong  []string
}

// visit is a request at the upstream. Its handler leaves before the client can
// see the end of the answer.
type visit struct {
	name string
	conn *net.TCPConn
}

// giveUp is called by a client before it gives up a request.
func (j *judge) giveUp(name string) { j.given.Store(name, true) }

func (j *judge) enter(name string, c *net.TCPConn) *visit {
	v := &visit{name, c}
	var doubtful []*visit
	j.mu.Lock()
	running := 1
	for o := range j.active {
		if _, given := j.given.Load(o.name); given {
			doubtful = append(doubtful, o)
		} else {
			running++
		}
	}
	j.active[v] = true
	j.mu.Unlock()
	for late, end := 0, time.Now().Add(j.patience); ; time.Sleep(time.Millisecond) {
		doubtful = slices.DeleteFunc(doubtful, func(o *visit) bool { return gone(o.conn) })
		if n := running + len(doubtful); n <= j.limit {
			j.mu.Lock()
			j.most = max(j.most, n)
			j.late += late
			j.mu.Unlock()
			return v
		}
		if running > j.limit || time.Now().After(end) {
			j.mu.Lock()
			j.wrong = append(j.wrong, fmt.Sprintf("%d at once, %d of them certain", running+len(doubtful), running))
			j.mu.Unlock()
			return v
		}
		late = 1
	}
}

func (j *judge) leave(v *visit) {
	j.mu.Lock()
	delete(j.active, v)
	j.mu.Unlock()
}

func (j *judge) running() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.active)
}

// gone reports whether the other side has closed the connection.
func gone(c *net.TCPConn) bool {
	const established = 1
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	state := uint8(0)
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	})
	return err != nil || state != established
}

// A judge who sees nothing would be content with everything.
func TestJudgeSeesOneTooMany(t *testing.T) {
	for _, c := range []struct {
		what         string
		given, close bool
		faults       int
	}{
		{"runs", false, false, 1},
		{"was closed too late to be given up", false, true, 1},
		{"was given up, and its connection is open", true, false, 1},
		{"was given up, and its connection is closed", true, true, 0},
	} {
		j := &judge{limit: 1, patience: 50 * time.Millisecond, active: map[*visit]bool{}}
		server, client := pair(t)
		first := j.enter("first", server)
		if c.given {
			j.giveUp("first")
		}
		if c.close {
			expect.OK(t, client.Close())
		}
		second, _ := pair(t)
		j.leave(j.enter("second", second))
		j.leave(first)
		if len(j.wrong) != c.faults || j.running() != 0 {
			t.Errorf("the first %s: %q, want %d faults", c.what, j.wrong, c.faults)
		}
	}
}

// pair is a connection from both sides.
func pair(t *testing.T) (server *net.TCPConn, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.OK(t, err)
	defer func() { _ = l.Close() }()
	client, err = net.Dial("tcp", l.Addr().String())
	expect.OK(t, err)
	accepted, err := l.Accept()
	expect.OK(t, err)
	t.Cleanup(func() { _, _ = client.Close(), accepted.Close() })
	return accepted.(*net.TCPConn), client
}
