// Gateway stands in front of a service of language models, and lets so many
// requests through to each model at once: across all gateways that share the
// semaphores. A streamed answer counts until its last token.
//
//	go run ./examples/gateway                                 # against a service of its own
//	go run ./examples/gateway -listen :8080 -upstream https://models.example.org \
//	    -redis 127.0.0.1:6379 -cap large=2,small=4            # a real one
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"sema"
	"sema/engines/memengine"
	"sema/engines/redisengine"
)

func main() {
	listen := flag.String("listen", "", "serve at this address; without it, show what a gateway does")
	upstream := flag.String("upstream", "", "URL of the service")
	addr := flag.String("redis", "", "share the caps through Redis at this address")
	caps := flag.String("cap", "large=2,small=4", "requests at once for each model")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, *listen, *upstream, *addr, *caps); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, listen, upstream, addr, caps string) error {
	perModel, err := parseCaps(caps)
	if err != nil {
		return err
	}
	engine, err := openEngine(addr)
	if err != nil {
		return err
	}
	if listen == "" {
		return show(ctx, engine, perModel, os.Stdout)
	}
	target, err := url.Parse(upstream)
	if err != nil || target.Host == "" {
		return fmt.Errorf("-upstream %q is no URL of a service", upstream)
	}
	g, err := newGateway(engine, target, perModel, time.Minute)
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

func openEngine(addr string) (sema.Engine, error) {
	if addr == "" {
		return memengine.New(), nil
	}
	logging.Disable() // what matters comes as an error of sema
	return redisengine.New(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), nil)
}

// parseCaps reads "large=2,small=4".
func parseCaps(text string) (map[string]int, error) {
	caps := map[string]int{}
	for one := range strings.SplitSeq(text, ",") {
		model, number, _ := strings.Cut(one, "=")
		n, err := strconv.Atoi(number)
		if model == "" || err != nil {
			return nil, fmt.Errorf("-cap %q: want model=number, and commas between", text)
		}
		caps[model] = n
	}
	return caps, nil
}
