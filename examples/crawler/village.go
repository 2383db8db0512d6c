package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"sema/examples/internal/gauge"
)

// village is some sites on this machine, which count who is there at once.
type village struct {
	servers []*httptest.Server
	urls    []string
	sites   []*gauge.Gauge
	all     *gauge.Gauge
}

func newVillage(sites int) *village {
	v := &village{all: gauge.New(inAll)}
	for range sites {
		here := gauge.New(perHost)
		server := httptest.NewServer(site(here, v.all))
		v.servers, v.urls, v.sites = append(v.servers, server), append(v.urls, server.URL), append(v.sites, here)
	}
	return v
}

// site has ten pages.
func site(here, all *gauge.Gauge) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/sitemap.xml", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
		for i := range 10 {
			fmt.Fprintf(w, "<url><loc>http://%s/page/%d</loc></url>", r.Host, i)
		}
		fmt.Fprint(w, "</urlset>")
	})
	mux.HandleFunc("/page/", func(w http.ResponseWriter, r *http.Request) {
		defer all.Enter(1)()
		defer here.Enter(1)()
		// A slow page: as long as it takes for others to come, if they may.
		here.Full(r.Context())
		all.Full(r.Context())
		fmt.Fprintln(w, "a page")
	})
	return mux
}
