package httpengine

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"sema/engine"
	"sema/internal/wire"
)

// readNews listens to the server until the engine is closed, and passes on what
// it tells.
func (e *Engine) readNews(ctx context.Context) {
	pause := firstPause
	last := ""
	for ctx.Err() == nil {
		began := time.Now()
		_ = e.listen(ctx, &last) // it only ends by an error, which says nothing new
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

	// silence is how long a stream may tell nothing, not even that the server
	// lives.
	silence = 20 * time.Second
)

// listen reads one stream to its end. last is the life of the server that the
// stream before it came from.
func (e *Engine) listen(ctx context.Context, last *string) error {
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
	in := newReader(answer.Body)
	for {
		n, err := wire.ReadNews(in)
		if err != nil {
			return err
		}
		quiet.Reset(silence)
		if n.Server != "" {
			// What was told meanwhile is lost: the sessions ask.
			if n.Fresh || *last != "" && *last != n.Server {
				e.tellAll()
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

// tellAll has every session that a server knew ask for everything again.
func (e *Engine) tellAll() {
	var opened []*session
	e.mu.Lock()
	for _, s := range e.sessions {
		if s.opened.Load() {
			opened = append(opened, s)
		}
	}
	e.mu.Unlock()
	for _, s := range opened {
		s.notify(engine.Notification{Ask: true, Renew: true})
	}
}

// startNews listens to the server from now on.
func (e *Engine) startNews() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.stream != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.stream = cancel
	e.streams.Go(func() { e.readNews(ctx) })
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 4096) }
