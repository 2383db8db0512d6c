package httpengine

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"time"

	"sema/internal/protocol"
	"sema/internal/wire"
)

// runStream reads the server's notifications until the engine is closed, and reconnects
// after each error.
func (e *Engine) runStream(ctx context.Context) {
	pause := firstPause
	last := ""
	for ctx.Err() == nil {
		began := time.Now()
		_ = e.readStream(ctx, &last) // reconnect after any error
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, lastPause)
	}
}

const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second

	// silence is how long a stream may be silent. A live server sends an empty message
	// more often.
	silence = 20 * time.Second
)

// readStream reads one response until it fails. last identifies the run of the server
// that sent the response before.
func (e *Engine) readStream(ctx context.Context, last *string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	r, err := e.request(ctx, http.MethodGet, "/v1/engine/news?client="+e.id, nil)
	if err != nil {
		return err
	}
	answer, err := e.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	in := bufio.NewReader(answer.Body)
	for {
		n, err := wire.ReadNews(in)
		if err != nil {
			return err
		}
		quiet.Reset(silence)
		if n.Server != "" {
			// Notifications in between were lost, so the sessions ask again.
			if n.Fresh || *last != "" && *last != n.Server {
				e.askAgain()
			}
			*last = n.Server
		}
		if n.Client != "" {
			e.mu.Lock()
			s := e.sessions[n.Client]
			e.mu.Unlock()
			if s != nil {
				s.notify(n.Notification)
			}
		}
	}
}

// askAgain tells every session that a server knew to ask for its tickets and to renew its
// permits.
func (e *Engine) askAgain() {
	var opened []*session
	e.mu.Lock()
	for _, s := range e.sessions {
		if s.opened.Load() {
			opened = append(opened, s)
		}
	}
	e.mu.Unlock()
	for _, s := range opened {
		s.notify(protocol.Notification{Ask: true, Renew: true})
	}
}

// startStream starts to read the server's notifications, unless that has begun before.
func (e *Engine) startStream() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.stream != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.stream = cancel
	e.streams.Go(func() { e.runStream(ctx) })
}
