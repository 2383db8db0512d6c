package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/loop"
	"sema/internal/protocol"
	"sema/internal/rights"
	"sema/internal/wire"
)

const (
	// beat is how often a stream sends something, to show that it is alive.
	beat = 5 * time.Second

	// writeTime is the time limit of each write to a stream: a client that does not read
	// is disconnected.
	writeTime = 10 * time.Second
)

// news streams notifications to a Go client until it disconnects.
func (s *Server) news(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	id := r.URL.Query().Get("client")
	if _, err := s.owner(id+".1", who); err != nil {
		return err
	}
	out := newStream(w, wire.ContentType)
	own := make(chan struct{})
	s.remotes.mu.Lock()
	if s.closed.Load() {
		s.remotes.mu.Unlock()
		return closing()
	}
	m, fresh := s.remotes.remoteOf(id)
	m.mu.Lock()
	if m.stream != nil {
		close(m.stream)
	}
	m.stream = own
	m.mu.Unlock()
	s.remotes.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen.Store(time.Now().UnixNano())
		if m.stream == own {
			m.stream = nil
		}
	}()
	if err := out.write(wire.AppendNews(nil, &wire.News{Server: s.life, Fresh: fresh})); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	var buffer []byte
	for {
		buffer = m.takeNews(buffer[:0])
		if len(buffer) > 0 {
			if err := out.write(buffer); err != nil {
				return nil //nolint:nilerr // the client is gone
			}
		}
		select {
		case <-m.wake:
		case <-ticker.C:
			if !s.stillAllowed(r, who) {
				return nil
			}
			if err := out.write([]byte{0}); err != nil {
				return nil //nolint:nilerr // the client is gone
			}
		case <-own:
			m.wakeStream() // the other stream sends the rest
			return nil
		case <-r.Context().Done():
			return nil
		case <-s.done:
			return nil
		}
	}
}

// wakeStream wakes the stream to send new notifications.
func (r *remote) wakeStream() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// stream is a response that sends each write at once.
type stream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func newStream(w http.ResponseWriter, contentType string) stream {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer the response
	return stream{w, http.NewResponseController(w)}
}

func (o stream) write(b []byte) error {
	_ = o.c.SetWriteDeadline(time.Now().Add(writeTime)) // fails with a test's writer
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return o.c.Flush()
}

func (s *Server) endSession(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	client := r.PathValue("client")
	if _, err := s.owner(client, who); err != nil {
		return err
	}
	s.remotes.closeSession(client)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// reading makes the handler that answers a Go client with the result of read for a semaphore.
func reading[T any](read func(*Server, context.Context, string) (T, error)) handler {
	return func(s *Server, w http.ResponseWriter, r *http.Request, who *access.Who) error {
		name, err := s.nameOf(r, who)
		if err != nil {
			return err
		}
		v, err := read(s, r.Context(), name)
		if err != nil {
			return err
		}
		return writeJSON(w, v)
	}
}

// engineList answers with the names of all semaphores that the client may see.
func (s *Server) engineList(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	all, err := s.engine.List(ctx)
	if err != nil {
		return err
	}
	names := []string{}
	for _, name := range all {
		if rights.Sees(*who, name) {
			names = append(names, name)
		}
	}
	return writeJSON(w, names)
}

// look returns a snapshot of a semaphore with the clients' ids.
func (s *Server) look(ctx context.Context, name string) (engine.State, error) {
	st, err := s.stateOf(ctx, name)
	s.remotes.outerIDs(&st)
	return st, err
}

// stateOf returns a snapshot of a semaphore with the engine's ids.
func (s *Server) stateOf(ctx context.Context, name string) (st engine.State, err error) {
	err = s.withSession(ctx, name, func(ctx context.Context, inner protocol.Session) error {
		st, err = inner.State(ctx)
		return err
	})
	return st, err
}

// withSession calls f with a session that only reads.
func (s *Server) withSession(ctx context.Context, name string, f func(context.Context, protocol.Session) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	inner, err := s.engine.Open(name, s.self, func(protocol.Notification) {})
	if err != nil {
		return err
	}
	defer func() { _ = inner.Close() }()
	return f(ctx, inner)
}

// holder returns the holder, with the engine's id, of a permit whose id is permit in a server's
// State; or the waiter with such a ticket. If there is none, its id is permit: an operation on it
// reports the error.
func (s *Server) holder(ctx context.Context, name, permit string) (engine.Holder, error) {
	var st engine.State
	err := loop.Repeat(ctx, func() (err error) {
		st, err = s.stateOf(ctx, name)
		return err
	})
	if id, invalid := engine.ParseID(permit); invalid == nil {
		if h := find(&st, id); h.ID != "" {
			return h, nil
		}
	}
	return engine.Holder{ID: permit}, err
}

// outerIDs translates the ids of permits in a snapshot to those of their clients.
func (m *remotes) outerIDs(st *engine.State) {
	for i := range st.Holders {
		st.Holders[i].ID = m.outerText(st.Holders[i].ID)
	}
	for i := range st.Waiters {
		st.Waiters[i].ID = m.outerText(st.Waiters[i].ID)
	}
}

// outerText translates a permit's id in the engine to that of its client.
func (m *remotes) outerText(text string) string {
	id, err := engine.ParseID(text)
	if err != nil {
		return text
	}
	m.mu.RLock()
	l, ok := m.lives[id.Client]
	m.mu.RUnlock()
	if !ok || id.Number-l.base > 1<<47 { // another client's session with the same name
		return text
	}
	id.Client, id.Number = l.client, id.Number-l.base
	return id.String()
}

func writeJSON(w http.ResponseWriter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return write(w, "application/json", append(text, '\n'))
}

func write(w http.ResponseWriter, contentType string, text []byte) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text) // fails only if the client is gone
	return nil
}
