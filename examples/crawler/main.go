// Crawler fetches all pages in the sitemaps of some sites. All crawlers that share the semaphore together send a site at
// most two requests at once. A real one obeys robots.txt as well.
//
//	go run ./crawler                                 # three sites of its own
//	go run ./crawler https://example.org             # a real one
//	go run ./crawler -redis 127.0.0.1:6379 https://example.org     # with other crawlers
package main

import (
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"

	"sema"
	"sema/examples/internal/engines"
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
	engine, end, err := engines.Open(*addr)
	if err == nil {
		err = run(ctx, engine, flag.Args(), os.Stdout)
		end()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crawler:", err)
		os.Exit(1)
	}
}

// run crawls the sites, or three of its own, and prints what it did.
func run(ctx context.Context, engine sema.Engine, sites []string, out io.Writer) error {
	var own *village
	if len(sites) == 0 {
		own = newVillage(3)
		for _, s := range own.servers {
			defer s.Close()
		}
		sites = own.urls
	}
	limits, err := sema.New(engine, "crawler", inAll, &sema.Options{Caps: sema.Caps{perHost}})
	if err != nil {
		return err
	}
	defer func() { _ = limits.Close() }() // everything has been given back by then
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	client := &http.Client{Transport: &semahttp.Transport{Limit: func(r *http.Request) semahttp.Limiter {
		return semahttp.Of(limits, sema.For(semahttp.Host(r)))
	}}}

	pages, failed := make([]int, len(sites)), make([]error, len(sites))
	var wg sync.WaitGroup
	for i, site := range sites {
		wg.Go(func() { pages[i], failed[i] = crawl(ctx, client, site) })
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for i, site := range sites {
		if own == nil {
			fmt.Fprintf(out, "%s: %d pages\n", site, pages[i])
		} else {
			fmt.Fprintf(out, "site %d: %d pages, %d at once\n", i+1, pages[i], own.sites[i].Most())
		}
	}
	if own != nil {
		fmt.Fprintf(out, "in all: %d at once\n", own.all.Most())
	}
	return nil
}

// crawl fetches the pages that a site's sitemap names, and counts them.
func crawl(ctx context.Context, client *http.Client, site string) (pages int, err error) {
	var list struct {
		Pages []string `xml:"url>loc"`
	}
	sitemap, err := fetch(ctx, client, site+"/sitemap.xml")
	if err == nil {
		err = xml.Unmarshal(sitemap, &list)
	}
	if err != nil {
		return 0, err
	}
	failed := make([]error, len(list.Pages))
	var wg sync.WaitGroup
	for i, page := range list.Pages { // the permits bound how many are on their way
		wg.Go(func() { _, failed[i] = fetch(ctx, client, page) }) // a real crawler works on what it has fetched
	}
	wg.Wait()
	return len(list.Pages), errors.Join(failed...)
}

// fetch returns the body of a page. The permit is back when it returns.
func fetch(ctx context.Context, client *http.Client, page string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "sema-crawler")
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // what was to be read has been
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", page, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
