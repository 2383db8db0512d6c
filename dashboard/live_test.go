package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/access"
	"sema/dashboard"
	"sema/engines/memengine"
	"sema/internal/fixture/pipenet"
)

// message is what a live page is sent.
type message struct {
	Parts map[string]string
	Lists map[string]struct {
		Order []string
		Rows  map[string]string
	}
}

// live is a page as a browser has it.
type live struct {
	parts, rows map[string]string
	order       []string
	messages    []message
}

// take puts a message into the page. It fails on a row that was never sent.
func (l *live) take(text []byte) error {
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	l.messages = append(l.messages[max(0, len(l.messages)-3):], m)
	if l.parts == nil {
		l.parts, l.rows = map[string]string{}, map[string]string{}
	}
	for key, html := range m.Parts {
		l.parts[key] = html
	}
	for name, list := range m.Lists {
		if name != "rows" && name != "holders" {
			continue
		}
		list.Order = slices.DeleteFunc(list.Order, func(key string) bool { return strings.HasSuffix(key, " detail") })
		rows := map[string]string{}
		for _, key := range list.Order {
			html, ok := list.Rows[key]
			if !ok {
				html, ok = l.rows[key]
			}
			if !ok {
				return fmt.Errorf("row %q was never sent", key)
			}
			rows[key] = html
		}
		l.order, l.rows = list.Order, rows
	}
	return nil
}

// follow reads a stream until the page is as wanted. Reading on is the caller's.
func follow(ctx context.Context, client *http.Client, url string, wanted func(*live) bool) (*live, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		return nil, fmt.Errorf("status %d, %v", resp.StatusCode, resp.Header)
	}
	l := &live{}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return l, err
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			if err := l.take(data); err != nil {
				return l, err
			}
			if wanted(l) {
				return l, nil
			}
		}
	}
}

func TestAChangeIsSeenLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, dashboard.Options{Interval: 20 * time.Millisecond})
		sem := s.semaphore("x", 3, nil)
		acquire(t, sem, 1)
		acquire(t, s.semaphore("quiet", 3, nil), 1)
		server := pipenet.Serve(s.d, nil)
		defer server.Close()
		first := true
		l, err := follow(t.Context(), server.Client(), server.URL+"/live?of=list", func(l *live) bool {
			if first {
				first = false
				if !slices.Equal(l.order, []string{"quiet", "x"}) {
					t.Errorf("first %v", l.order)
				}
				acquire(t, sem, 2)
			}
			return strings.Contains(l.rows["x"], "3 of 3")
		})
		if err != nil {
			t.Fatal(err)
		}
		if last := l.messages[len(l.messages)-1]; last.Lists["rows"].Rows["quiet"] != "" {
			t.Errorf("a row that did not change was sent again: %+v", last)
		}
		// And it is the very HTML of the page.
		has(t, s.get(200, "/"), l.rows["x"])

		first = true
		_, err = follow(t.Context(), server.Client(), server.URL+"/live?of=semaphore&name=x", func(l *live) bool {
			if first {
				first = false
				if len(l.order) != 2 {
					t.Errorf("holders %v", l.order)
				}
				if err := sem.Close(); err != nil { // gives back all
					t.Error(err)
				}
			}
			return len(l.order) == 0 && strings.Contains(l.parts["say"], "0 of 3")
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// A hundred pages and two hundred changes a second: in the end each page shows
// the truth, also one that reads slowly, and the server makes each page once
// for all.
func TestAHundredLivePages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, dashboard.Options{Interval: 50 * time.Millisecond, Streams: 101})
		sem := s.semaphore("busy", 1000, nil)
		acquire(t, sem, 1)
		server := pipenet.Serve(s.d, nil)
		defer server.Close()
		client := server.Client()
		client.Transport.(*http.Transport).MaxIdleConnsPerHost = 200

		var over atomic.Bool
		var readers sync.WaitGroup
		began := make(chan struct{}, 200)
		for i := range 101 {
			readers.Go(func() {
				told := false
				_, err := follow(t.Context(), client, server.URL+"/live?of=list", func(l *live) bool {
					if !told {
						told = true
						began <- struct{}{}
					}
					if i == 0 && !over.Load() { // it reads nothing for a while
						for !over.Load() {
							runtime.Gosched()
							time.Sleep(time.Millisecond)
						}
					}
					return strings.Contains(l.rows["busy"], "999 of 1,000")
				})
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			})
		}
		for range 101 {
			<-began
		}
		if resp, err := client.Get(server.URL + "/live?of=list"); err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("one too many: %v %v", resp, err)
		} else {
			_ = resp.Body.Close()
		}
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		heap := func() int {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc) >> 10
		}
		var before int
		for i := range 600 {
			<-tick.C
			p := acquire(t, sem, 1)
			if err := p.Release(); err != nil {
				t.Fatal(err)
			}
			if i == 200 {
				before = heap()
			}
		}
		after := heap()
		t.Logf("101 pages: %d kB in use after 200 changes, %d kB after 600", before, after)
		if after > before+8<<10 { // what piled up for each page and change would be 20 MB and more
			t.Errorf("%d kB after 200 changes, %d kB after 600: something piles up", before, after)
		}
		acquire(t, sem, 998)
		over.Store(true)
		readers.Wait()
	})
}

// In virtual time: a stream ends when its reader loses the right, it reports an
// engine that is away, and all activity ends with the last reader.
func TestStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &flaky{Engine: memengine.New()}
		var may atomic.Bool
		may.Store(true)
		d, err := dashboard.New(e, &dashboard.Options{Allow: func(*http.Request) access.Who {
			if !may.Load() {
				return access.Who{}
			}
			return access.Who{Right: "read"}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		sem, err := sema.New(e, "x", 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sem.Close() }()
		acquire(t, sem, 1)
		stream := func(ctx context.Context) (*httptest.ResponseRecorder, chan struct{}) {
			w, done := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(done)
				d.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/live?of=list", nil).WithContext(ctx))
			}()
			return w, done
		}
		w, done := stream(t.Context())
		time.Sleep(10 * time.Second)
		e.away.Store(true)
		time.Sleep(10 * time.Second)
		e.away.Store(false)
		time.Sleep(10 * time.Second)
		may.Store(false)
		<-done
		l := &live{}
		var notices []string
		for line := range strings.Lines(w.Body.String()) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := l.take([]byte(data)); err != nil {
					t.Error(err)
				}
				if len(l.rows) != 1 {
					t.Errorf("rows %v", l.rows)
				}
				notices = append(notices, l.parts["notice"])
			}
		}
		notices = slices.Compact(notices)
		if len(notices) != 3 || notices[0] != "" || !strings.Contains(notices[1], "Figures are of") || notices[2] != "" {
			t.Errorf("notices %q", notices)
		}
		if !strings.Contains(w.Body.String(), "\n:\n") {
			t.Error("no heartbeat")
		}

		may.Store(true)
		ctx, leave := context.WithCancel(t.Context())
		_, done = stream(ctx)
		time.Sleep(time.Second)
		leave()
		<-done
		time.Sleep(20 * time.Minute) // the watcher's rounds linger
		before := e.calls.Load()
		time.Sleep(time.Hour)
		if n := e.calls.Load() - before; n != 0 {
			t.Errorf("the engine was asked %d times though nobody looks", n)
		}
		_, done = stream(t.Context())
		time.Sleep(time.Second)
		d.Close()
		<-done
		w, done = stream(t.Context())
		<-done
		if w.Code != 503 {
			t.Errorf("after Close: %d", w.Code)
		}
	})
}
