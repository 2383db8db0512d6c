package server

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"time"

	"sema/access"
	"sema/internal/client"
)

// holdEvent is a line of the response of hold.
type holdEvent struct {
	Event string `json:"event"` // waiting, granted, held, lost, refused
	Ahead *int   `json:"ahead,omitempty"`
	*permitJSON
	Reason string `json:"reason,omitempty"`
}

// hold is acquire for clients that cannot renew. The server renews the permit while the
// response lasts, and releases it when the client disconnects.
func (s *Server) hold(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	id, began := rand.Text(), time.Now()
	ask, err := s.ask(w, r, who, id, true)
	if err != nil {
		return err
	}
	defer ask.end()
	defer ask.settle(r.Context(), false)
	x, p := ask.x, ask.p
	defer func() {
		x.loop.Lock()
		defer x.loop.Unlock()
		x.tellOver(p, nil)
	}()
	var out *stream
	say := func(event holdEvent) error {
		if out == nil {
			o := newStream(w, "application/x-ndjson")
			out = &o
		}
		line, err := json.Marshal(event)
		if err != nil {
			return err
		}
		return out.write(append(line, '\n'))
	}
	sayOver := func(event string, err error) {
		s.noteFailure(r.Context(), err)
		_ = say(holdEvent{Event: event, Reason: plain(problemOf(err).at(x.name))}) // the client may be gone
	}
	sayHeld := func(event string) error {
		x.loop.Lock()
		now := x.describe(p, id)
		x.loop.Unlock()
		return say(holdEvent{Event: event, permitJSON: &now})
	}
	err = ask.await(r.Context(), func(state client.State, ahead int) error {
		if state != client.Waiting {
			return nil
		}
		return say(holdEvent{Event: "waiting", Ahead: &ahead})
	})
	ask.tellAsked(err, time.Since(began))
	switch {
	case err == errNone:
		err = x.unavailable(r.Context(), p.Wish.Takes)
	case err == nil && !s.stillAllowed(r, who): // the wait may have lasted an hour
		err = errTokenOver
	}
	if err != nil && out != nil {
		sayOver("refused", err)
		return nil
	}
	if err != nil {
		return err
	}
	if sayHeld("granted") != nil {
		return nil
	}
	s.stats.grants.add(time.Since(began))
	beats := time.NewTicker(min(p.Wish.Lease/3, beat))
	defer beats.Stop()
	for {
		x.loop.Lock()
		lost, changed := p.err, p.changed
		x.loop.Unlock()
		if lost != nil {
			sayOver("lost", lost)
			return nil
		}
		select {
		case <-changed:
		case <-beats.C:
			if !s.stillAllowed(r, who) {
				sayOver("lost", errTokenOver)
				return nil
			}
			if sayHeld("held") != nil {
				return nil
			}
		case <-s.done:
			sayOver("lost", closing())
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}
