package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// village is some sites on this machine, which count who is there at once.
type village struct {
	names   []string
	servers map[string]*httptest.Server
	sites   []*gauge
	all     *gauge
}

func newVillage(names ...string) *village {
	v := &village{names: names, servers: map[string]*httptest.Server{}, all: newGauge(inAll)}
	for _, name := range names {
		here := newGauge(perHost)
		v.sites = append(v.sites, here)
		v.servers[name] = httptest.NewServer(site(name, here, v.all))
	}
	return v
}

// site has twelve pages; it does not want to be asked for two of them.
func site(name string, here, all *gauge) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "User-agent: *\nDisallow: /private/\n\nSitemap: http://%s/sitemap.xml\n", name)
	})
	mux.HandleFunc("/sitemap.xml", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
		for i := range 10 {
			fmt.Fprintf(w, "<url><loc>http://%s/page/%d</loc></url>", name, i)
		}
		fmt.Fprintf(w, "<url><loc>http://%[1]s/private/1</loc></url><url><loc>http://%[1]s/private/2</loc></url></urlset>", name)
	})
	mux.HandleFunc("/page/", func(w http.ResponseWriter, r *http.Request) {
		all.enter()
		here.enter()
		defer all.leave()
		defer here.leave()
		// A slow page: as long as it takes for others to come, if they may.
		here.full(r.Context())
		all.full(r.Context())
		fmt.Fprintln(w, "a page of", name)
	})
	return mux
}

func (v *village) urls() []string {
	urls := make([]string, len(v.names))
	for i, name := range v.names {
		urls[i] = "http://" + name
	}
	return urls
}

// dial finds a site by its name.
func (v *village) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	server := v.servers[name]
	if server == nil {
		return nil, fmt.Errorf("no site %q", name)
	}
	return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
}

func (v *village) most(site int) int { return v.sites[site].most() }

func (v *village) close() {
	for _, s := range v.servers {
		s.Close()
	}
}

// gauge counts who is there at once.
type gauge struct {
	mu        sync.Mutex
	now, peak int
	capacity  int
	filled    chan struct{} // closed when as many as may be were there at once
}

func newGauge(capacity int) *gauge { return &gauge{capacity: capacity, filled: make(chan struct{})} }

func (g *gauge) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
	if g.now > g.peak {
		if g.peak = g.now; g.peak == g.capacity {
			close(g.filled)
		}
	}
}

func (g *gauge) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

func (g *gauge) most() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peak
}

// full waits until as many as may be were there at once, but not for ever.
func (g *gauge) full(ctx context.Context) {
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	select {
	case <-g.filled:
	case <-ctx.Done():
	case <-late.C:
	}
}
