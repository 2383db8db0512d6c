package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/rights"
)

const (
	// heartbeat is how often an idle stream says something, and how often it is
	// looked up whether its reader still may read.
	heartbeat = 15 * time.Second

	// sendTime is how long a browser may take to accept one message.
	sendTime = 10 * time.Second

	// buildTime bounds the making of a page, and lateTime is when what is shown
	// is said to be old.
	buildTime = 10 * time.Second
	lateTime  = 3 * time.Second
)

// feeds keep open pages up to date. Browsers with the same page share a feed:
// it is made once an interval, whatever their number. Each browser is sent what
// differs from what it was sent last. One that is slow gets the newest when it
// is ready, so it misses nothing that is still true, and nothing piles up.
type feeds struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	streams int
	open    map[string]*feed
}

// feed is one page's changes. Guarded by the feeds' lock.
type feed struct {
	key     string
	readers map[chan struct{}]struct{} // have a value when there is something new
	newest  pieces
	stop    context.CancelFunc
}

func (f *feeds) init() {
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.open = map[string]*feed{}
}

func (f *feeds) shut() {
	f.mu.Lock()
	f.cancel() // nobody joins after this
	f.mu.Unlock()
	f.running.Wait()
}

// source is a page that changes.
type source struct {
	key   string // equal keys are equal pages
	build func(context.Context) (pieces, error)
	stale func(error) pieces // says that what is shown is old, and why
}

// join adds a reader to the feed of a page. ok is false when there are too many
// already, or it is all over.
func (f *feeds) join(page source, most int, every time.Duration) (d *feed, news chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil || f.streams >= most {
		return nil, nil, false
	}
	f.streams++
	d = f.open[page.key]
	if d == nil {
		ctx, stop := context.WithCancel(f.ctx)
		d = &feed{key: page.key, readers: map[chan struct{}]struct{}{}, stop: stop}
		f.open[page.key] = d
		f.running.Go(func() { f.run(ctx, d, every, page) })
	}
	news = make(chan struct{}, 1)
	if d.newest != nil {
		news <- struct{}{}
	}
	d.readers[news] = struct{}{}
	return d, news, true
}

func (f *feeds) leave(d *feed, news chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams--
	delete(d.readers, news)
	if len(d.readers) == 0 {
		d.stop()
		delete(f.open, d.key)
	}
}

// run makes a page anew as long as somebody reads it. What is shown stays if that
// fails, or takes long, and is said to be old.
func (f *feeds) run(ctx context.Context, d *feed, every time.Duration, page source) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var failed error
	for {
		bounded, cancel := context.WithTimeout(ctx, buildTime)
		why := cmp.Or(failed, context.DeadlineExceeded)
		late := time.AfterFunc(lateTime, func() { f.publish(d, page.stale(why)) })
		p, err := page.build(bounded)
		late.Stop()
		cancel()
		if ctx.Err() != nil {
			return
		}
		if failed = err; err != nil {
			p = page.stale(err)
		}
		f.publish(d, p)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// publish has the readers of a page have its newest state.
func (f *feeds) publish(d *feed, p pieces) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d.newest = p
	for news := range d.readers {
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

func (f *feeds) newestOf(d *feed) pieces {
	f.mu.Lock()
	defer f.mu.Unlock()
	return d.newest
}

// live streams the changes of a page as server-sent events.
func (h *Handler) live(w http.ResponseWriter, r *http.Request, a visitor) {
	page, ok := h.source(r.URL.Query(), a)
	if !ok {
		h.fail(w, r, a, http.StatusNotFound, "There is no such semaphore.")
		return
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return // a stream has no end to wait for
	}
	d, news, ok := h.feeds.join(page, h.options.Streams, h.options.Interval)
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many live pages are open", http.StatusServiceUnavailable)
		return
	}
	defer h.feeds.leave(d, news)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies would wait for more
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	send := func(text []byte) error {
		_ = control.SetWriteDeadline(time.Now().Add(sendTime)) // where there is no deadline, none is needed
		if _, err := w.Write(text); err != nil {
			return err
		}
		return control.Flush()
	}
	if send([]byte("retry: 2000\n\n")) != nil {
		return
	}
	sent := sent{}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		var text []byte
		select {
		case <-news:
			text = sent.message(h.feeds.newestOf(d))
		case <-beat.C:
			if now := h.visitor(r); now.Right != a.Right || !slices.Equal(now.Prefixes, a.Prefixes) {
				return
			}
			text = []byte(":\n\n")
		case <-r.Context().Done():
			return
		case <-h.feeds.ctx.Done():
			return
		}
		if len(text) > 0 && send(text) != nil {
			return
		}
	}
}

// source is the page that an address asks for.
func (h *Handler) source(v url.Values, a visitor) (page source, ok bool) {
	may, _ := json.Marshal([]any{a.Right, a.Prefixes}) // plain data
	page.stale = func(err error) pieces {
		p := pieces{}
		p.part("notice", "notice", h.stale(err))
		return p
	}
	switch v.Get("of") {
	case "list":
		q := listQueryOf(v)
		page.key = string(may) + q.address()
		page.build = func(ctx context.Context) (pieces, error) {
			list, err := h.list(ctx, q, a)
			return list.pieces(), err
		}
		return page, true
	case "semaphore":
		q := semaphoreQueryOf(v)
		if engine.ValidateName(q.name) != nil || !rights.Sees(a.Who, q.name) {
			return page, false
		}
		page.key = string(may) + q.address()
		page.build = func(ctx context.Context) (pieces, error) {
			s, err := h.semaphore(ctx, q, a)
			return s.pieces(), err
		}
		return page, true
	}
	return page, false
}
