// Crawler fetches all pages in the sitemaps of some sites, politely. It obeys
// robots.txt. All crawlers that share the semaphores together send a site at
// most two requests at once.
//
//	go run ./examples/crawler                                 # three sites of its own
//	go run ./examples/crawler https://example.org             # a real one
//	go run ./examples/crawler -redis 127.0.0.1:6379 https://example.org     # with other crawlers
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"sema"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/semahttp"
)

const (
	perHost = 2 // requests at once to one host
	inAll   = 4 // and to all hosts
)

func main() {
	addr := flag.String("redis", "", "share the limits through Redis at this address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	engine, err := openEngine(*addr)
	if err == nil {
		err = run(ctx, engine, flag.Args(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crawler:", err)
		os.Exit(1)
	}
}

func openEngine(addr string) (sema.Engine, error) {
	if addr == "" {
		return memengine.New(), nil
	}
	logging.Disable() // what matters comes as an error of sema
	return redisengine.New(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), nil)
}

// run crawls the sites, or three of its own, and prints what it did.
func run(ctx context.Context, engine sema.Engine, sites []string, out io.Writer) error {
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	var own *village
	if len(sites) == 0 {
		own = newVillage("a.test", "b.test", "c.test")
		defer own.close()
		base.DialContext = own.dial
		sites = own.urls()
	}
	limits, err := sema.New(engine, "crawler", inAll, &sema.Options{Caps: sema.Caps{perHost}})
	if err != nil {
		return err
	}
	defer func() { _ = limits.Close() }() // everything has been given back by then
	client := &http.Client{Transport: &semahttp.Transport{Base: base, Limit: func(r *http.Request) semahttp.Limiter {
		return semahttp.Of(limits, sema.For(semahttp.Host(r)))
	}}}

	results := make([]result, len(sites))
	var wg sync.WaitGroup
	for i, site := range sites {
		wg.Go(func() { results[i] = crawl(ctx, client, site) })
	}
	wg.Wait()
	for i, r := range results {
		if r.err != nil {
			return fmt.Errorf("%s: %w", sites[i], r.err)
		}
		fmt.Fprintf(out, "%s: %d pages, %d left alone", sites[i], r.pages, r.forbidden)
		if own != nil {
			fmt.Fprintf(out, ", %d at once", own.most(i))
		}
		fmt.Fprintln(out)
	}
	if own != nil {
		fmt.Fprintf(out, "in all: %d at once\n", own.all.most())
	}
	return ctx.Err()
}
