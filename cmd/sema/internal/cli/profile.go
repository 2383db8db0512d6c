package cli

import (
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
)

// serveProfiles answers with profiles of the process at an address of this host,
// until closing is called. Profiles show what is in memory, and cost time: so they
// are for those who are on the host.
func serveProfiles(address string) (at string, closing func(), err error) {
	if address == "" {
		return "", func() {}, nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil || !loopback(address) {
		return "", nil, usage("--profile 127.0.0.1:6060", "--profile %s: want an address of this host only, such as 127.0.0.1, and a port", printable(address, 100))
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, &exit{exitUnreachable, usage("another --profile", "cannot listen on %s: %v", printable(address, 100), err)}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	h := &http.Server{Handler: ownHost(mux)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = h.Serve(l) }) // until it is closed
	return l.Addr().String(), func() { _ = h.Close(); serving.Wait() }, nil
}

// ownHost answers requests for an address of this host, so that no web page reaches
// them under a name of its own.
func ownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := r.Host; !loopback(host) && !loopback(net.JoinHostPort(host, "80")) {
			http.Error(w, "want a request for localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
