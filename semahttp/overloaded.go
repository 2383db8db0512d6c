package semahttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"

	"sema/admit"
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

// judge marks the request's permit if it went badly.
func (t *Transport) judge(p *pass, a *http.Response, err error) {
	bad := t.Overloaded
	if bad == nil {
		bad = overloadedResponse
	}
	if p.over() == nil && bad(a, err) {
		admit.Overloaded(p.permit)
	}
}
