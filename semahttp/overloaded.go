package semahttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"sema/admit"
	"sema/engine"
)

// overloads are the answers of a server that has too much to do.
var overloads = []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// overloadedStatus is the default of Handler.Overloaded.
func overloadedStatus(status int) bool { return slices.Contains(overloads, status) }

// overloadedResponse is the default of Transport.Overloaded.
func overloadedResponse(a *http.Response, err error) bool {
	if err == nil {
		return overloadedStatus(a.StatusCode)
	}
	var late net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout()
}

// RetryAfter is how long the other side wants no further request: the Retry-After of a response of 429 or 503, in seconds or as a
// date by the clock of that side. It is 0 if the response does not say, or at most engine.MaxCooldown. Transport hears it by itself.
func RetryAfter(a *http.Response) time.Duration {
	text := a.Header.Get("Retry-After")
	if text == "" || a.StatusCode != http.StatusTooManyRequests && a.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	seconds, err := strconv.Atoi(text)
	wait := time.Duration(max(0, min(seconds, int(engine.MaxCooldown/time.Second)))) * time.Second
	if at, wrong := http.ParseTime(text); wrong == nil {
		wait = time.Until(at)
		if sent, err := http.ParseTime(a.Header.Get("Date")); err == nil {
			wait = at.Sub(sent)
		}
	} else if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return max(0, min(wait, engine.MaxCooldown))
}

// judge marks the request's permit if it went badly, and tells all processes when the other side wants the next request.
func (t *Transport) judge(p *pass, a *http.Response, err error) {
	if err == nil {
		admit.RetryAfter(p.permit, RetryAfter(a))
	}
	bad := t.Overloaded
	if bad == nil {
		bad = overloadedResponse
	}
	if p.over() == nil && bad(a, err) {
		admit.Overloaded(p.permit)
	}
}
