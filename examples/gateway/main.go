// Gateway stands in front of a vendor's service of language models. For each model it keeps to a number of requests at once, which
// organisations share and within each its users, and to requests and tokens a minute: across all gateways that share the
// semaphores. A streamed answer counts until its last token, and then by the tokens that it has used.
//
//	go run ./gateway                                          # against a service of its own, which counts
//	go run ./gateway -listen :8080 -upstream https://models.example.org -redis 127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sema"
	"sema/examples/internal/engines"
)

// ours are the limits of this gateway; a real one reads them from its configuration.
var ours = limits{
	organisations: []string{"acme", "globex", "initech"},
	models:        map[string]model{"large": {4, "rpm=500/1m,tpm=20000+200000/1m"}, "small": {4, "rpm=10/1s,tpm=1000/1h"}},
	caps:          sema.Caps{3, 2},
	places:        3,
	wait:          time.Minute,
}

func main() {
	listen := flag.String("listen", "", "serve at this address; without it, show what a gateway does")
	vendor := flag.String("upstream", "", "URL of the service")
	addr := flag.String("redis", "", "share the limits through Redis at this address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, *listen, *vendor, *addr); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, listen, vendor, addr string) error {
	engine, end, err := engines.Open(addr)
	if err != nil {
		return err
	}
	defer end()
	if listen == "" {
		return show(ctx, engine, os.Stdout)
	}
	target, err := url.Parse(vendor)
	if err != nil || target.Host == "" {
		return fmt.Errorf("-upstream %q is no URL of a service", vendor)
	}
	g, err := newGateway(engine, target, ours)
	if err != nil {
		return err
	}
	defer g.close()
	server := &http.Server{Addr: listen, Handler: g, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		stopped <- g.shutdown(ending, server)
	})
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
