package semahttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"sema"
	"sema/admit"
)

// Transport is an http.RoundTripper that limits how many requests run at once. A
// request runs until its response has been read to the end or closed, or has
// failed. Fields must not be changed after first use.
//
// The permit is given back at the end of the body, at Close, on an error, and
// when the request's context ends. A body that nobody closes is found by the
// garbage collector: it is closed, and Observer.Abandoned is told. When the
// permit is lost, the request is cancelled, and reading the body fails with that
// loss, sema.ErrLost. A response of 101 Switching Protocols keeps its permit
// until it is closed, whatever becomes of the request's context.
//
// A response of 429 or 503 with a Retry-After is heard by all processes: nobody is granted a permit of the semaphore before,
// see sema.Permit.RetryAfter.
//
// Redirects and retries of an http.Client are requests of their own. What
// http.Transport repeats by itself is one request.
//
// A wait ends with the request's context. The error is then the context's own, and a
// sema.ErrBusy, or a sema.ErrEngine if the engine had not answered. A request that cannot be
// served by then fails at once, with a *sema.BusyError. A Timeout of the http.Client replaces
// that error by another: bound requests by their context, or by Wait.
type Transport struct {
	// Base sends the requests. Default http.DefaultTransport.
	Base http.RoundTripper

	// Limit is the limiter that a request has to pass; the zero Limiter for a
	// request that is not limited. See Of and OfEach. Required.
	Limit func(*http.Request) Limiter

	// Wait is how long a request waits for its permit at most, or NoWait. Default: 0, as long
	// as its context lasts.
	Wait time.Duration

	// Outage says what happens when the engine does not answer: admit.Open, admit.Local.
	// Default admit.Closed.
	Outage admit.Policy

	// Overloaded says which responses and errors of Base show that the server has too much
	// to do, for a semaphore with sema.Options.Adapt. It does not read the body. Default:
	// 429, 503, 504, and what took too long.
	Overloaded func(*http.Response, error) bool

	// Used says what a request has used of rates, by pool, see Settle. It must not change the response. Default: all that was taken counts.
	Used func(a *http.Response, end []byte) map[string]int

	// Observer is told what no response and no error shows. Default: nobody.
	Observer Observer

	gate admit.Gate
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	o, err := t.check()
	var p *pass
	if err == nil {
		p, _, err = enter(&t.gate, r, o, t.Limit, &t.Observer)
	}
	switch {
	case err != nil && r.Body != nil:
		_ = r.Body.Close() // as RoundTrip must; it was never read
		return nil, err
	case err != nil:
		return nil, err
	case p == nil:
		return t.base().RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	sent := r.WithContext(p.context(ctx))
	handed := false
	defer func() {
		if !handed { // failed, has no body, or panicked
			cancel()
			p.release()
		}
	}()
	resp, err := t.base().RoundTrip(sent)
	t.judge(p, resp, err)
	if err != nil {
		if over := p.over(); over != nil {
			err = fmt.Errorf("%w: %w", over, err)
		}
		return nil, err
	}
	// Base may keep the response for as long as the body lasts. It must not keep
	// our body with it, or nobody could tell that the caller dropped it.
	if resp.Trailer == nil {
		resp.Trailer = http.Header{} // Base adds to it at the end of the body: the copy has to see that
	}
	answer := *resp
	if t.Used != nil && sema.PermitFrom(sent.Context()) != sema.PermitFrom(r.Context()) { // else it is one that the caller holds for something else
		told := answer // what Used is told of must not lead to our body either
		told.Request = sent
		if hasNoBody(r, &answer) {
			told.Body = nil
		}
		if Settle(&told, t.Used); told.Body != nil {
			answer.Body = told.Body
		}
		told.Request = r
	}
	if answer.Request == sent {
		answer.Request = r
	}
	_, writable := answer.Body.(io.Writer)
	upgraded := answer.StatusCode == http.StatusSwitchingProtocols && writable
	if hasNoBody(r, &answer) && !upgraded {
		return &answer, nil
	}
	handed = true
	s := newStream(p, answer.Body, r.Context(), cancel, upgraded, t.Observer.abandoned(r, p.name))
	answer.Body = s.start(sent.Context())
	return &answer, nil
}

// CloseIdleConnections has Base close its idle connections, if it can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// Check returns nil if the transport can send. Otherwise it returns the
// *sema.ArgumentError with which every request would fail, or with which Of or OfEach panics: Check
// calls Limit once with an empty request. To call Check first is not required.
func (t *Transport) Check() error {
	if _, err := t.check(); err != nil {
		return err
	}
	return try(t.Limit)
}

// check returns what requests are admitted under, and what the transport cannot send with.
func (t *Transport) check() (admit.Options, error) {
	o := admit.Options{Wait: t.Wait, Outage: t.Outage, Told: t.Observer.Outage}
	if t.Limit == nil {
		return o, errNoLimit
	}
	return o, o.Check("semahttp")
}

var errNoLimit = invalid("Limit", nil, "a function that returns a Limiter")

func hasNoBody(r *http.Request, a *http.Response) bool {
	return a.Body == nil || a.Body == http.NoBody || r.Method == http.MethodHead ||
		a.StatusCode == http.StatusNoContent || a.StatusCode == http.StatusNotModified
}
