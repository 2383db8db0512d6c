// Package semahttp limits how many HTTP requests run at once, across every
// process that shares a semaphore: those that a program sends, with
// [Transport], and those that it serves, with [Handler].
//
//	limit := func(r *http.Request) semahttp.Limiter { return semahttp.Of(sem, sema.For(tenant(r))) }
//
//	client := &http.Client{Transport: &semahttp.Transport{Limit: limit}}
//
//	http.Handle("/", &semahttp.Handler{Next: app, Limit: limit, Wait: 5 * time.Second})
//
// A request that is sent holds its permit until its response has been read to
// the end or closed, streams included. A request that is served holds it until
// its handler has returned, or the connection that the handler took over is
// closed. The request's context ends when the permit is lost.
//
// Package admit has the policies for requests while the engine of the semaphore
// does not answer.
package semahttp
