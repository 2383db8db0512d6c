package server_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

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

func TestAccessLog(t *testing.T) {
	log := &buffer{}
	o := server.Options{Tokens: tokens(t), AccessLog: true, Log: slog.New(slog.NewTextHandler(log, nil))}
	virtual(t, o, func(t *testing.T, h *testServer) {
		h.token = "boss.secret-of-the-boss"
		h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1}`)
		h.want(200, "GET", "/v1/semaphores?prefix=query-with-a-secret", ``)
		h.want(429, "PUT", "/v1/semaphores/x/permits/b", `{"limit":1}`)
		h.token = "boss.wrong-secret-of-his"
		h.want(401, "GET", "/v1/semaphores", ``)
		h.settle()
	})
	text := log.String()
	for _, want := range []string{
		`level=INFO msg=request method=PUT path=/v1/semaphores/x/permits/a route="PUT /v1/semaphores/{name}/permits/{id}" status=200 seconds=0 who=boss from=`,
		`level=WARN msg=request method=PUT path=/v1/semaphores/x/permits/b route="PUT /v1/semaphores/{name}/permits/{id}" status=429 seconds=0 who=boss from=`,
		"level=WARN msg=request method=GET path=/v1/semaphores route=\"GET /v1/semaphores\" status=401",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret-of") || strings.Contains(text, "a-secret") {
		t.Errorf("a secret is in the log:\n%s", text)
	}
}
