package cli

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// vanished is how long a client may leave what the server sent unacknowledged. Then the system closes the connection.
// By default that takes a quarter of an hour, and the permit of a hold would be taken for as long. Only Linux does it.
const vanished = 10 * time.Second

// mostConns is how many connections clients may have open at a time. It is less than the number of files that this
// process may open, since the engine needs some too.
func mostConns() int {
	const usual = 30_000
	return max(1, min(usual, cmp.Or(openFiles(), usual*2)*3/4))
}

// listen listens for at most most connections at a time. A further one waits until another is closed.
func listen(address string, most int, unacknowledged time.Duration) (net.Listener, error) {
	config := net.ListenConfig{Control: userTimeout(unacknowledged)}
	config.SetMultipathTCP(false) // its sockets refuse the option
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(l, most), nil
}

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
