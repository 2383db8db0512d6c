package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/rights"
	"sema/watch"
)

// eventJSON is an event of a semaphore. It omits fields that do not apply to its kind.
type eventJSON struct {
	Time   time.Time    `json:"time"`
	Name   string       `json:"name,omitempty"`
	Permit string       `json:"permit,omitempty"`
	Key    engine.Key   `json:"key,omitempty"`
	Takes  engine.Pools `json:"takes,omitempty"`
	Weight int          `json:"weight,omitempty"`
	Token  int64        `json:"token,omitempty"`
	Waited float64      `json:"waited_seconds,omitempty"`
	Held   float64      `json:"held_seconds,omitempty"`
	Limit  int          `json:"limit,omitempty"`
	Pinned bool         `json:"pinned,omitempty"`
	Host   string       `json:"host,omitempty"`
	PID    int          `json:"pid,omitempty"`
	Label  string       `json:"label,omitempty"`
	Caller string       `json:"caller,omitempty"`
	Missed int          `json:"missed,omitempty"`
}

// events sends events as server-sent events until the client disconnects. A client that
// reads too slowly is told how many events it missed.
func (s *Server) events(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	which, err := s.filter(r, who)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	seen := make(chan watch.Event)
	go func() {
		defer close(seen)
		for e := range s.watcher.Events(ctx, which) {
			select {
			case seen <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range seen { // wait for the goroutine's end
		}
	}()
	out := newStream(w, "text/event-stream")
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		line := []byte(": alive\n\n")
		select {
		case e, ok := <-seen:
			if !ok {
				return nil
			}
			if line, err = s.eventText(e); err != nil {
				return err
			}
		case <-ticker.C:
			if !s.stillAllowed(r, who) {
				return nil
			}
		}
		if out.write(line) != nil {
			return nil //nolint:nilerr // the client has disconnected
		}
	}
}

// filter returns the semaphores that a request asks for, limited to those that its token may
// see.
func (s *Server) filter(r *http.Request, who *access.Who) (watch.Filter, error) {
	q := r.URL.Query()
	if q.Has("name") {
		name, err := s.nameOf(r, who)
		return watch.Filter{Name: name}, err
	}
	prefix := q.Get("prefix")
	prefixes, any := rights.Among(*who, prefix)
	if !any {
		return watch.Filter{}, s.checkSees(who, prefix)
	}
	return watch.Filter{Prefixes: prefixes}, nil
}

// eventText encodes an event. The JSON has no line breaks.
func (s *Server) eventText(e watch.Event) ([]byte, error) {
	text, err := json.Marshal(eventJSON{
		Time: e.Time.UTC(), Name: e.Semaphore, Permit: s.remotes.outerText(e.Permit), Key: e.Key, Takes: e.Takes, Weight: e.Weight, Token: e.Token,
		Waited: e.Waited.Seconds(), Held: e.Held.Seconds(), Limit: e.Limit, Pinned: e.Pinned,
		Host: e.Client.Host, PID: e.Client.PID, Label: e.Client.Label, Caller: e.Client.Caller, Missed: e.Missed,
	})
	return []byte("event: " + e.Kind + "\ndata: " + string(text) + "\n\n"), err
}
