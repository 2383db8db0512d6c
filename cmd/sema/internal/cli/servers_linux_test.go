package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/internal/fixture/redistest"
)

// pair is two servers over one Redis, either of which may be killed at any moment.
type pair struct {
	t     *testing.T
	redis string
	mu    sync.Mutex
	at    [2]*served
	kills atomic.Int64
}

func (p *pair) start(i int) {
	s := serve(p.t, "--url", p.redis)
	p.mu.Lock()
	p.at[i] = s
	p.mu.Unlock()
}

// any is one of the servers, and how often one had been killed by then.
func (p *pair) any() (url string, kills int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[rand.IntN(2)].url, p.kills.Load()
}

// replace kills a server, and starts another in its place.
func (p *pair) replace(i int) {
	p.mu.Lock()
	s := p.at[i]
	p.kills.Add(1)
	p.mu.Unlock()
	expect.OK(p.t, s.cmd.Process.Kill())
	<-s.logs
	_ = s.cmd.Wait()
	p.start(i)
}

// ask sends a request to any server until one answers, as a caller of the JSON
// API does. It decodes the answer into into.
func (p *pair) ask(ctx context.Context, method, path, body string, into any) (status int, err error) {
	for {
		url, _ := p.any()
		r, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		r.Header.Set("Content-Type", "application/json")
		a, err := http.DefaultClient.Do(r)
		if err == nil {
			var got bytes.Buffer
			_, err = got.ReadFrom(a.Body)
			_ = a.Body.Close()
			if err == nil && a.StatusCode < 500 {
				if into != nil && a.StatusCode == 200 {
					err = json.Unmarshal(got.Bytes(), into)
				}
				return a.StatusCode, err
			}
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// Callers of the JSON API ask two servers at random, and again at either when one is
// killed: no more hold than the limit, nobody is overtaken without a kill, no permit
// is had twice, and in the end all is free.
func TestTwoServersThatAreKilled(t *testing.T) {
	t.Parallel()
	const limit, callers, kills, between = 3, 12, 6, 30
	server := redistest.Start(t)
	p := &pair{t: t, redis: server.URL()}
	p.start(0)
	p.start(1)
	ctx, cancel := context.WithCancel(expect.Within(t))
	defer cancel()
	work, stop := context.WithCancel(ctx)
	holds := &history.Holds{}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := 0; work.Err() == nil; n++ {
				path := fmt.Sprintf("/v1/semaphores/two/permits/job-%d.%d", i, n)
				_, before := p.any()
				hold := history.Hold{ID: path, Weight: 1, Slot: -1, Call: holds.Now()}
				var permit struct {
					Token int64   `json:"token"`
					Lease float64 `json:"lease_seconds"`
				}
				if status, err := p.ask(ctx, "PUT", path, fmt.Sprintf(`{"limit":%d,"wait_seconds":600}`, limit), &permit); err != nil || status != 200 {
					t.Errorf("%s: %d %v", path, status, err)
					return
				}
				hold.Return, hold.Token = holds.Now(), permit.Token
				time.Sleep(rand.N(4 * time.Millisecond)) // the work
				if rand.IntN(3) == 0 {
					if status, err := p.ask(ctx, "POST", path+"/renew", "", nil); err != nil || status != 200 {
						t.Errorf("renewing %s: %d %v", path, status, err)
					}
				}
				hold.Release, hold.Trusted = holds.Now(), hold.Return+int64(permit.Lease*1e9)
				_, after := p.any()
				hold.Faulty = before != after
				holds.Add(hold)
				// 410: the first attempt did it, and its answer was lost with its server.
				if status, err := p.ask(ctx, "DELETE", path, "", nil); err != nil || status != 204 && status != 410 {
					t.Errorf("giving back %s: %d %v", path, status, err)
				}
			}
		})
	}
	for i := range kills {
		before := holds.Len()
		expect.Until(t, "more were granted", func() bool { return t.Failed() || holds.Len() >= before+between })
		p.replace(i % 2)
	}
	stop()
	all.Wait()
	expect.OK(t, holds.Check(limit, 0))
	var st engine.State
	expect.Until(t, "all is free", func() bool {
		_, err := p.ask(ctx, "GET", "/v1/semaphores/two", "", &st)
		expect.OK(t, err)
		return st.Used == 0
	})
	t.Logf("%d grants, %d servers killed", holds.Len(), kills)
}

// The disk is full. With --audit-required the server refuses all changes that it
// cannot log. Without it, the log says that a line is missing.
func TestServeOnAFullDisk(t *testing.T) {
	for _, required := range []bool{false, true} {
		args := []string{"--url", fileURL(t), "--audit", "/dev/full"}
		if required {
			args = append(args, "--audit-required")
		}
		s := serve(t, args...)
		env := "SEMA_URL=" + s.url
		ok(t, env, "run", "-n", "1", "x", "--", "true")
		code, out := run(t, env, "limit", "x", "7")
		if required != (code == 69) || required != strings.Contains(out, "the audit log cannot be written, so nothing was changed") {
			t.Errorf("required %v: exit code %d: %s", required, code, out)
		}
		if required && strings.Count(out, "\n") != 1 {
			t.Errorf("want one line: %s", out)
		}
		w, body := s.api("PUT", "/v1/semaphores/x/limit", `{"limit":7}`)
		if required != (strings.Contains(body, `"urn:sema:audit"`) && strings.Contains(body, `"notExecuted":true`)) || strings.Contains(body, `"temporary":true`) {
			t.Errorf("required %v: %s", required, body)
		}
		w2, _ := s.post(s.browser(""), "/act", url.Values{"do": {"limit"}, "name": {"x"}, "limit": {"7"}})
		if required != (w.StatusCode == 503) || required != (w2.StatusCode == 503) {
			t.Errorf("required %v: %s, %s", required, w.Status, w2.Status)
		}
		if out := ok(t, env, "show", "x", "--json"); required == strings.Contains(out, `"limit": 7`) {
			t.Errorf("required %v: %s", required, out)
		}
		// A line for each of the three changes: none is tried again.
		if n := strings.Count(s.end(), "the audit log cannot be written"); n != 3 {
			t.Errorf("required %v: %d lines of the log say so, want 3", required, n)
		}
	}
}
