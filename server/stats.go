package server

import (
	"bufio"
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"sema/internal/rights"
	"sema/metrics"
)

// stats are the server's counts about itself.
type stats struct {
	routes []*routeStats // complete before the first request
	conns  atomic.Int64  // open connections, without the upgraded ones
	grants spread        // of the JSON API: from the request to the permit
	calls  spread        // of Go clients: the engine's time for a call
}

// routeStats are the counts of one route.
type routeStats struct {
	name   string // method and path, as in the OpenAPI description
	open   atomic.Int64
	status [6]atomic.Uint64 // by the first digit
	took   spread
}

// bounds are the bounds of the histograms in seconds. They include long waits.
var bounds = []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 30, 120, 600, 3600}

// spread counts durations.
type spread struct {
	counts [12]atomic.Uint64 // one more than bounds
	sum    atomic.Int64      // nanoseconds
}

func (d *spread) add(took time.Duration) {
	i, _ := slices.BinarySearch(bounds, took.Seconds())
	d.counts[i].Add(1)
	d.sum.Add(int64(took))
}

func (d *spread) shown() metrics.Spread {
	s := metrics.Spread{Bounds: bounds, Counts: make([]uint64, len(d.counts)), Sum: time.Duration(d.sum.Load()).Seconds()}
	for i := range d.counts {
		s.Counts[i] = d.counts[i].Load()
	}
	return s
}

// counted counts the requests of a route, and writes them to the access log if there is
// one.
func (s *Server) counted(name string, h http.HandlerFunc) http.HandlerFunc {
	x := &routeStats{name: name}
	s.stats.routes = append(s.stats.routes, x)
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		x.open.Add(1)
		c := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			took := time.Since(began)
			x.open.Add(-1)
			x.status[min(max(c.status/100, 0), 5)].Add(1)
			x.took.add(took)
			if s.options.AccessLog {
				s.logAccess(r, name, c.who, c.status, took)
			}
		}()
		h(c, r)
	}
}

// statusWriter records the status of an answer and the name of the request's token.
type statusWriter struct {
	http.ResponseWriter
	status int
	final  bool   // status does not change any more
	who    string // the name of the token; "": there was no valid one
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if !w.final && status >= 200 {
		w.status, w.final = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	w.final = true
	return w.ResponseWriter.Write(b)
}

// Hijack is for http.ResponseController: the connection is upgraded.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, both, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
	}
	return c, both, err
}

// Flush is for a wrapper of the dashboard's writer, such as one that compresses: it looks for an http.Flusher.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// logAccess logs an answered request. It logs neither the header nor the query, since both
// may have secrets.
func (s *Server) logAccess(r *http.Request, route, who string, status int, took time.Duration) {
	level := slog.LevelInfo
	switch {
	case status == http.StatusNotFound, status == http.StatusConflict, status == http.StatusGone, status == http.StatusLocked, status == http.StatusTooManyRequests:
		// a state of the semaphore
	case status == http.StatusServiceUnavailable && s.closed.Load(): // it says so to all
	case status >= 500 && status != http.StatusServiceUnavailable:
		level = slog.LevelError
	case status >= 400:
		level = slog.LevelWarn
	case route == "/" && r.Header.Get("Sema-Live") != "": // one a second for each open page of the dashboard
		level = slog.LevelDebug
	}
	s.log.Log(r.Context(), level, "request", "method", r.Method, "path", r.URL.Path, "route", route, "status", status,
		"seconds", took.Seconds(), "who", who, "from", rights.Host(r))
}

func (t *stats) connState(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		t.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		t.conns.Add(-1)
	}
}

// Families implements [metrics.Source] with the server's counts about itself since New. The
// names begin with sema.server. The duration of a request includes the wait of a long poll
// and the whole life of a stream.
func (s *Server) Families(context.Context) []metrics.Family {
	requests := metrics.Family{Name: "sema.server.requests", Unit: "{request}", Kind: metrics.Counter, Help: "Answered requests, by route and first digit of the status."}
	open := metrics.Family{Name: "sema.server.requests.open", Unit: "{request}", Help: "Requests that are not answered yet, including long polls, streams and holds."}
	took := metrics.Family{Name: "sema.server.request.duration", Unit: "s", Kind: metrics.Histogram, Help: "Time from a request to the end of its answer, including waits."}
	routes := slices.SortedFunc(slices.Values(s.stats.routes), func(a, b *routeStats) int { return cmp.Compare(a.name, b.name) })
	for _, x := range routes {
		route := metrics.Label{Name: "route", Value: x.name}
		d := x.took.shown()
		if d.Count() > 0 || x.open.Load() > 0 { // most routes are never used
			open.Series = append(open.Series, metrics.Series{Labels: []metrics.Label{route}, Value: float64(x.open.Load())})
			took.Series = append(took.Series, metrics.Series{Labels: []metrics.Label{route}, Spread: d})
		}
		for digit := range x.status {
			if n := x.status[digit].Load(); n > 0 {
				code := metrics.Label{Name: "code", Value: string(rune('0'+digit)) + "xx"}
				requests.Series = append(requests.Series, metrics.Series{Labels: []metrics.Label{route, code}, Value: float64(n)})
			}
		}
	}
	s.upgraded.mu.Lock()
	upgraded := int64(s.upgraded.open)
	s.upgraded.mu.Unlock()
	gauge := func(name, unit, help string, value int64) metrics.Family {
		return metrics.Family{Name: name, Unit: unit, Help: help, Series: []metrics.Series{{Value: float64(value)}}}
	}
	duration := func(name, help string, d *spread) metrics.Family {
		return metrics.Family{Name: name, Unit: "s", Kind: metrics.Histogram, Help: help, Series: []metrics.Series{{Spread: d.shown()}}}
	}
	return []metrics.Family{
		requests, open, took,
		duration("sema.server.grant.wait", "Time from a request of the JSON API to its permit.", &s.stats.grants),
		duration("sema.server.call.duration", "Time of the engine for a call of a Go client.", &s.stats.calls),
		gauge("sema.server.waiters", "{request}", "Requests of the JSON API that wait for a permit, or hold one with hold.", s.waiters.Load()),
		gauge("sema.server.waiters.limit", "{request}", "The largest number of such requests.", int64(s.options.MaxWaiters)),
		gauge("sema.server.connections", "{connection}", "Open connections, including upgraded ones.", s.stats.conns.Load()+upgraded),
		gauge("sema.server.lines", "{connection}", "Upgraded connections, which carry calls of Go clients.", upgraded),
	}
}
