package main

import (
	"bufio"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

const agent = "sema-crawler"

// result is what came of a site.
type result struct {
	pages, forbidden int
	err              error
}

// crawl fetches the pages of a site that its sitemaps name and its robots.txt
// allows.
func crawl(ctx context.Context, client *http.Client, site string) (r result) {
	rules, sitemaps, err := robots(ctx, client, site)
	if err != nil {
		return result{err: err}
	}
	pages := make(chan string)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 2 * perHost { // one waits for a permit while another reads
		wg.Go(func() {
			for page := range pages {
				err := fetch(ctx, client, page, func(body io.Reader) error {
					_, err := io.Copy(io.Discard, body) // the work of a real crawler
					return err
				})
				mu.Lock()
				if r.err = errors.Join(r.err, err); err == nil {
					r.pages++
				}
				mu.Unlock()
			}
		})
	}
	forbidden := 0
	for _, sitemap := range sitemaps {
		var list struct {
			Pages []string `xml:"url>loc"`
		}
		if err = fetch(ctx, client, sitemap, func(body io.Reader) error { return xml.NewDecoder(body).Decode(&list) }); err != nil {
			break
		}
		for _, page := range list.Pages {
			if rules.allow(page) {
				pages <- page
			} else {
				forbidden++
			}
		}
	}
	close(pages)
	wg.Wait()
	r.forbidden, r.err = forbidden, errors.Join(err, r.err)
	return r
}

// fetch hands the body of a page to use. The permit is back when it returns.
func fetch(ctx context.Context, client *http.Client, page string, use func(io.Reader) error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", agent)
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // what was to be read has been
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", page, resp.Status)
	}
	return use(resp.Body)
}

// rules are what robots.txt says to us: for a path the longest prefix counts.
type rules map[string]bool // by prefix, whether it is allowed

func (r rules) allow(page string) bool {
	u, err := url.Parse(page)
	if err != nil {
		return false
	}
	longest, ok := "", true
	for prefix, allowed := range r {
		if strings.HasPrefix(u.Path, prefix) && len(prefix) > len(longest) {
			longest, ok = prefix, allowed
		}
	}
	return ok
}

// robots reads robots.txt: the rules for everybody, those for us, and the
// sitemaps.
func robots(ctx context.Context, client *http.Client, site string) (rules, []string, error) {
	found, sitemaps := rules{}, []string(nil)
	err := fetch(ctx, client, site+"/robots.txt", func(body io.Reader) error {
		forUs, agents := false, false
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			line, _, _ := strings.Cut(lines.Text(), "#")
			field, value, _ := strings.Cut(line, ":")
			field, value = strings.ToLower(strings.TrimSpace(field)), strings.TrimSpace(value)
			switch field {
			case "user-agent":
				forUs = forUs && agents || value == "*" || strings.EqualFold(value, agent)
			case "allow", "disallow":
				if forUs && value != "" {
					found[value] = field == "allow"
				}
			case "sitemap":
				sitemaps = append(sitemaps, value)
			}
			agents = field == "user-agent"
		}
		return lines.Err()
	})
	return found, sitemaps, err
}
