package cli

import (
	"net/http"
	"sync"

	"sema/access"
	"sema/dashboard"
	"sema/history"
	"sema/metrics"
	"sema/server"
	watching "sema/watch"
)

// mount adds what other packages show of the engine: the dashboard at /, figures
// at /metrics, events. Its result ends them, after the server.
func mount(at *openEngine, o *server.Options, f historyFlags) (closing func(), err error) {
	w, err := watching.New(at.Engine, nil)
	if err != nil {
		return nil, err
	}
	kept, closeKept, err := f.open(w, o.Log)
	if err != nil {
		w.Close()
		return nil, err
	}
	d, err := dashboard.New(at.Engine, dashboardOptions(o, at, w, kept))
	if err != nil {
		closeKept()
		w.Close()
		return nil, err
	}
	audit := o.Audit
	o.Audit = func(r access.Record) { // the dashboard tells the history by itself
		audit(r)
		kept.Act(r)
	}
	figures := &figures{watcher: w}
	o.Watcher, o.Dashboard, o.Metrics, o.Closing = w, d, figures, d.Close
	return func() {
		d.Close()
		figures.close()
		closeKept()
		w.Close()
	}, nil
}

// calledEngines are what operators call the kinds of engines.
var calledEngines = map[string]string{
	"file": "The directory", "redis": "Redis", "sentinel": "Redis", "cluster": "Redis Cluster", "http": "The other server",
}

// dashboardOptions let in those whom the server lets in.
func dashboardOptions(o *server.Options, at *openEngine, w *watching.Watcher, kept *history.History) *dashboard.Options {
	d := &dashboard.Options{Engine: calledEngines[at.kind], Watcher: w, History: kept, Log: o.Log, Audit: o.Audit}
	if o.Tokens == nil {
		d.Allow = func(*http.Request) access.Who { return access.Who{Name: "local", Right: access.Admin} }
		return d
	}
	d.Login = func(token string) (access.Who, bool) {
		who := o.Tokens.Find(token)
		if who == nil {
			return access.Who{}, false
		}
		return *who, true
	}
	return d
}

// figures are served from the first request for them on: to have them costs
// looks at the engine, whether anybody asks or not.
type figures struct {
	watcher *watching.Watcher

	mu      sync.Mutex
	handler http.Handler
	watch   *metrics.Watch
	closed  bool
}

// ServeHTTP implements http.Handler.
func (f *figures) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if f.handler == nil && !f.closed {
		x, err := metrics.NewWatch(f.watcher, nil)
		if err != nil {
			f.mu.Unlock()
			http.Error(w, err.Error(), http.StatusInternalServerError) // cannot happen: there are no values
			return
		}
		f.watch, f.handler = x, metrics.Handler(x)
	}
	h := f.handler
	f.mu.Unlock()
	if h == nil {
		http.Error(w, "closed", http.StatusServiceUnavailable)
		return
	}
	h.ServeHTTP(w, r)
}

func (f *figures) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.watch != nil {
		f.watch.Close()
	}
}
