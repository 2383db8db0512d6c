package cli

import (
	"net/http"
	"sync"

	"github.com/klauspost/compress/gzhttp"

	"sema/access"
	"sema/dashboard"
	"sema/internal/rights"
	"sema/metrics"
	"sema/server"
	watching "sema/watch"
)

// mount adds what other packages show of the engine: the dashboard at /, figures
// at /metrics, events. The figures want the server before it serves; closing ends them,
// after the server.
func mount(at *openEngine, o *server.Options) (f *figures, closing func(), err error) {
	compressed, err := gzhttp.NewWrapper()
	if err != nil {
		return nil, nil, err
	}
	w, err := watching.New(at.Engine, nil)
	if err != nil {
		return nil, nil, err
	}
	d, err := dashboard.New(at.Engine, dashboardOptions(o, at, w))
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	audit := o.Audit
	o.Audit = func(r access.Record) { // the dashboard knows of its own
		audit(r)
		if r.What != rights.Refusal {
			d.Acted(r)
		}
	}
	callers, _ := metrics.NewRecorder(nil) // without options nothing can be wrong
	o.Observer = callers.Observer()
	f = &figures{watcher: w, callers: callers}
	o.Watcher, o.Dashboard, o.Metrics, o.Closing = w, compressed(d), compressed(f), d.Close
	return f, func() {
		d.Close()
		f.close()
		w.Close()
	}, nil
}

// calledEngines are what operators call the kinds of engines.
var calledEngines = map[string]string{
	"file": "The directory", "redis": "Redis", "sentinel": "Redis", "cluster": "Redis Cluster", "http": "The other server", "postgres": "PostgreSQL",
}

// dashboardOptions let in those whom the server lets in.
func dashboardOptions(o *server.Options, at *openEngine, w *watching.Watcher) *dashboard.Options {
	d := &dashboard.Options{Engine: calledEngines[at.kind], Watcher: w, Always: true, Log: o.Log, Audit: o.Audit, AuditFirst: o.AuditFirst}
	if o.PublicURL != nil {
		d.Origins, _, _ = rights.Origins(o.PublicURL) // it is one
		d.Secure = o.PublicURL.Scheme == "https"
	}
	if o.Tokens == nil {
		d.Allow = func(*http.Request) access.Who { return access.Who{Name: "local", Right: rights.Admin} }
		return d
	}
	d.Login = func(r *http.Request, token string) (access.Who, bool) {
		who, err := o.Tokens.Login(r, token)
		if err != nil {
			o.Audit(rights.Refused(access.Who{}, r, "", err.Error()))
			return access.Who{}, false
		}
		return *who, true
	}
	d.Unchecked = o.Tokens.Unchecked
	return d
}

// figures are served from the first request for them on: to have them costs
// looks at the engine, whether anybody asks or not.
type figures struct {
	watcher *watching.Watcher
	server  *server.Server    // tells of itself
	callers *metrics.Recorder // of the JSON API

	once  sync.Once
	watch *metrics.Watch // nil after once: closed before anybody asked
}

// ServeHTTP implements http.Handler.
func (f *figures) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.once.Do(func() { f.watch, _ = metrics.NewWatch(f.watcher, nil) }) // without options nothing can be wrong
	if f.watch == nil {
		http.Error(w, "the server is closing", http.StatusServiceUnavailable)
		return
	}
	metrics.Handler(f.watch, f.callers, f.server, metrics.Process()).ServeHTTP(w, r)
}

func (f *figures) close() {
	f.once.Do(func() {})
	if f.watch != nil {
		f.watch.Close()
	}
}
