package server_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/metrics"
	"sema/server"
)

// figures reads the metrics of a server, by series.
func (h *testServer) figures() map[string]string {
	h.Helper()
	h.settle()
	var text strings.Builder
	expect.OK(h, metrics.WriteText(context.Background(), &text, h.server))
	lines := map[string]string{}
	for line := range strings.Lines(text.String()) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			lines[line[:i]] = strings.TrimSpace(line[i:])
		}
	}
	return lines
}

func (h *testServer) wantFigures(want map[string]string) {
	h.Helper()
	got := h.figures()
	for series, v := range want {
		if got[series] != v {
			h.Errorf("%s is %q, want %q", series, got[series], v)
		}
	}
}

func TestTheServerTellsOfItself(t *testing.T) {
	virtual(t, server.Options{MaxWaiters: 7}, func(t *testing.T, h *testServer) {
		const put, del = `route="PUT /v1/semaphores/{name}/permits/{id}"`, `route="DELETE /v1/semaphores/{name}/permits/{id}"`
		h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1}`)
		h.want(429, "PUT", "/v1/semaphores/x/permits/b", `{"limit":1}`)
		h.want(400, "PUT", "/v1/semaphores/x/permits/b", `{"limit":0}`)
		h.want(405, "PATCH", "/v1/semaphores/x", ``)
		answered := h.later(t.Context(), "/v1/semaphores/x/permits/w", `{"limit":1,"wait_seconds":600}`)
		h.waiting("x", 1)
		h.wantFigures(map[string]string{
			`sema_server_requests_total{` + put + `,code="2xx"}`:                  "1",
			`sema_server_requests_total{` + put + `,code="4xx"}`:                  "2",
			`sema_server_requests_total{route="other methods",code="4xx"}`:        "1",
			`sema_server_requests_open{` + put + `}`:                              "1",
			`sema_server_waiters`:                                                 "1",
			`sema_server_waiters_limit`:                                           "7",
			`sema_server_lines`:                                                   "0",
			`sema_server_grant_wait_seconds_count`:                                "1",
			`sema_server_request_duration_seconds_bucket{` + put + `,le="+Inf"}`:  "3",
			`sema_server_request_duration_seconds_bucket{` + put + `,le="0.001"}`: "3",
		})
		time.Sleep(20 * time.Second)
		h.want(204, "DELETE", "/v1/semaphores/x/permits/a", ``)
		if a := <-answered; a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		h.wantFigures(map[string]string{
			`sema_server_requests_open{` + put + `}`:                "0",
			`sema_server_waiters`:                                   "0",
			`sema_server_requests_total{` + del + `,code="2xx"}`:    "1",
			`sema_server_grant_wait_seconds_count`:                  "2",
			`sema_server_grant_wait_seconds_sum`:                    "20",
			`sema_server_grant_wait_seconds_bucket{le="5"}`:         "1",
			`sema_server_grant_wait_seconds_bucket{le="30"}`:        "2",
			`sema_server_request_duration_seconds_sum{` + put + `}`: "20",
		})
	})
}

// A recorder counts what callers of the API experience, by semaphore: each permit once, however often it is asked for.
func TestAnObserverIsToldOfCallers(t *testing.T) {
	recorder, err := metrics.NewRecorder(nil)
	expect.OK(t, err)
	virtual(t, server.Options{Observer: recorder.Observer()}, func(t *testing.T, h *testServer) {
		const x = "/v1/semaphores/x"
		h.want(200, "PUT", x+"/permits/a", `{"limit":1}`)
		h.want(200, "PUT", x+"/permits/a", `{"limit":1}`)
		h.want(429, "PUT", x+"/permits/b", `{"limit":1}`)
		h.want(429, "PUT", x+"/permits/b", `{"limit":1,"wait_seconds":4}`)
		h.want(409, "PUT", x+"/permits/b", `{"limit":1,"weight":2}`)
		h.want(204, "DELETE", x+"/permits/a", ``)
		h.want(200, "PUT", x+"/permits/short", `{"limit":1,"lease_seconds":5}`)
		time.Sleep(10 * time.Second)
		h.want(410, "POST", x+"/permits/short/renew", ``)
		other := newVirtual(t, h.engine, server.Options{})
		other.want(200, "PUT", x+"/permits/there", `{"limit":1}`)
		time.Sleep(2 * time.Second)
		h.want(204, "DELETE", x+"/permits/there", ``)
		ctx, cancel := context.WithCancel(t.Context())
		w := h.stream(ctx, "POST", x+"/hold", `{"limit":1}`)
		_, err := bufio.NewReader(w.Body).ReadString('\n')
		expect.OK(t, err)
		time.Sleep(3 * time.Second)
		cancel()
		_ = w.Body.Close()
		h.settle()
		h.want(204, "PUT", x+"/limit", `{"limit":1,"observe":true}`)
		h.want(200, "PUT", x+"/permits/c", `{"limit":1}`)
		if d := h.want(200, "PUT", x+"/permits/d", `{"limit":1,"weight":3}`); d.field("would_wait") != true || d.field("slot") != nil {
			t.Errorf("%s", d.body)
		}
		if st := h.want(200, "GET", x, ``); !strings.Contains(string(st.body), `"observed":{"grants":2,"would_wait":1,"for_limit":1,"most":4,"enough":4}`) || !strings.Contains(string(st.body), `"would_wait":true`) {
			t.Errorf("%s", st.body)
		}
		h.want(204, "PUT", x+"/limit", `{"limit":5}`)
		h.want(200, "PUT", x+"/permits/e", `{"limit":1}`)
		h.want(429, "PUT", x+"/permits/f", `{"limit":1}`)
		var text strings.Builder
		expect.OK(t, metrics.WriteText(t.Context(), &text, recorder))
		for _, want := range []string{
			`sema_acquires_total{sema_name="x",result="acquired"} 5`, `sema_acquires_total{sema_name="x",result="would_wait"} 1`, `sema_acquires_total{sema_name="x",result="refused"} 2`, `sema_acquires_total{sema_name="x",result="timeout"} 1`,
			`sema_acquires_total{sema_name="x",result="invalid"} 1`, `sema_acquires_total{sema_name="x",result="failed"} 0`, `sema_acquire_wait_seconds_count{sema_name="x"} 5`,
			`sema_leases_lost_total{sema_name="x",reason="expired"} 1`, `sema_lease_duration_seconds_count{sema_name="x"} 4`,
		} {
			if !strings.Contains(text.String(), want+"\n") {
				t.Errorf("no %s in\n%s", want, text.String())
			}
		}
	})
}

func TestAccessLog(t *testing.T) {
	log := &buffer{}
	o := server.Options{Tokens: tokens(t), AccessLog: true, Log: slog.New(slog.NewTextHandler(log, nil))}
	virtual(t, o, func(t *testing.T, h *testServer) {
		h.token = "boss.secret-of-the-boss"
		h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1}`)
		h.want(200, "GET", "/v1/semaphores?prefix=query-with-a-secret", ``)
		h.want(429, "PUT", "/v1/semaphores/x/permits/b", `{"limit":1}`)
		waits := h.later(t.Context(), "/v1/semaphores/x/permits/w", `{"limit":1,"wait_seconds":600}`)
		h.waiting("x", 1)
		h.token = "boss.wrong-secret-of-his"
		h.want(401, "GET", "/v1/semaphores", ``)
		h.server.Close()
		if a := <-waits; a.status != 503 {
			t.Errorf("%d", a.status)
		}
		h.settle()
	})
	text := log.String()
	expect.Has(t, text,
		`level=INFO msg=request method=PUT path=/v1/semaphores/x/permits/a route="PUT /v1/semaphores/{name}/permits/{id}" status=200 seconds=0 who=boss from=`,
		`level=INFO msg=request method=PUT path=/v1/semaphores/x/permits/b route="PUT /v1/semaphores/{name}/permits/{id}" status=429 seconds=0 who=boss from=`,
		`level=INFO msg=request method=PUT path=/v1/semaphores/x/permits/w route="PUT /v1/semaphores/{name}/permits/{id}" status=503`,
		"level=WARN msg=request method=GET path=/v1/semaphores route=\"GET /v1/semaphores\" status=401",
	)
	if strings.Contains(text, "secret-of") || strings.Contains(text, "a-secret") {
		t.Errorf("a secret is in the log:\n%s", text)
	}
}

// An engine that is away is one line at its first failure and one at its end, at each server, whatever requests there are.
func TestAnOutageIsTwoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var is atomic.Bool
		e := between{memengine.New(), func(string) error {
			if !is.Load() {
				return nil
			}
			return &engine.Error{Op: "step", Temporary: true, NotExecuted: true, Err: errors.New("connection refused")}
		}}
		var logs [2]*buffer
		for i := range logs {
			logs[i] = &buffer{}
			log := slog.New(slog.NewTextHandler(logs[i], nil))
			d := newDashboard(t, e, dashboard.Options{Log: log, Audit: func(access.Record) {}})
			h := newVirtual(t, e, server.Options{Log: log, Dashboard: d})
			for range 2 {
				logs[i].b.Reset()
				h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":5}`)
				is.Store(true)
				for range 10 {
					h.want(503, "POST", "/v1/semaphores/x/permits", `{"limit":6}`)
					h.want(503, "POST", "/v1/semaphores/x/permits", `{"limit":5}`)
					h.want(503, "GET", "/v1/semaphores/x", ``)
					h.want(503, "GET", "/readyz", ``)
					h.page(503, "GET", "/act?do=pause&name=x", nil)
					h.page(503, "POST", "/act", url.Values{"do": {"pause"}, "name": {"x"}})
				}
				is.Store(false)
				time.Sleep(3 * time.Second)
				h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":5}`)
				lines := strings.Split(strings.TrimSpace(logs[i].String()), "\n")
				if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[1], "level=INFO") || !strings.Contains(lines[1], "refused=60") || !strings.Contains(lines[1], "seconds=") {
					t.Errorf("server %d: %q", i, lines)
				}
			}
		}
	})
}
