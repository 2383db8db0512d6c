package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"sema/engine"
	"sema/watch"
)

// eventJSON is what happened to a semaphore. Fields that say nothing of an
// event's kind are left out.
type eventJSON struct {
	Time   time.Time `json:"time"`
	Name   string    `json:"name,omitempty"`
	Permit string    `json:"permit,omitempty"`
	Key    string    `json:"key,omitempty"`
	Weight int       `json:"weight,omitempty"`
	Token  int64     `json:"token,omitempty"`
	Waited float64   `json:"waited_seconds,omitempty"`
	Held   float64   `json:"held_seconds,omitempty"`
	Limit  int       `json:"limit,omitempty"`
	Pinned bool      `json:"pinned,omitempty"`
	Host   string    `json:"host,omitempty"`
	PID    int       `json:"pid,omitempty"`
	Label  string    `json:"label,omitempty"`
	Caller string    `json:"caller,omitempty"`
	Missed int       `json:"missed,omitempty"`
}

// events tells what happens, as server-sent events, until the reader goes. One
// that reads too slowly is told how many events it missed.
func (s *Server) events(w http.ResponseWriter, r *http.Request, who *Who) error {
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
		for range seen { // until its goroutine has ended
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
			if !s.still(r, who) {
				return nil
			}
		}
		if out.write(line) != nil {
			return nil //nolint:nilerr // the reader is gone
		}
	}
}

// filter is what a request wants to hear of, as far as its token goes.
func (s *Server) filter(r *http.Request, who *Who) (watch.Filter, error) {
	q := r.URL.Query()
	if q.Has("name") {
		name := q.Get("name")
		if err := engine.ValidateName(name); err != nil {
			return watch.Filter{}, err
		}
		return watch.Filter{Name: name}, s.sees(who, name)
	}
	prefix := q.Get("prefix")
	prefixes, any := who.Among(prefix)
	if !any {
		return watch.Filter{}, s.sees(who, prefix)
	}
	return watch.Filter{Prefixes: prefixes}, nil
}

// eventText is an event on its way to the reader. JSON has no line breaks.
func (s *Server) eventText(e watch.Event) ([]byte, error) {
	text, err := json.Marshal(eventJSON{
		Time: e.Time.UTC(), Name: e.Semaphore, Permit: s.remotes.outerText(e.Permit), Key: e.Key, Weight: e.Weight, Token: e.Token,
		Waited: e.Waited.Seconds(), Held: e.Held.Seconds(), Limit: e.Limit, Pinned: e.Pinned,
		Host: e.Client.Host, PID: e.Client.PID, Label: e.Client.Label, Caller: e.Client.Caller, Missed: e.Missed,
	})
	return []byte("event: " + string(e.Kind) + "\ndata: " + string(text) + "\n\n"), err
}
