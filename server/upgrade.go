package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"sema/access"
	"sema/internal/wire"
)

// upgradedConns counts the upgraded connections of Go clients. They carry calls without the
// overhead of HTTP, which would take longer than the call.
type upgradedConns struct {
	mu     sync.Mutex
	open   int
	closed bool
	ended  sync.WaitGroup
}

func (l *upgradedConns) add() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.open++
	l.ended.Add(1)
	return true
}

func (l *upgradedConns) remove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	l.ended.Done()
}

// close waits for the running calls.
func (l *upgradedConns) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.ended.Wait()
}

// calls upgrades a request's connection, and answers calls until the client closes it.
func (s *Server) calls(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), wire.Upgrade) {
		w.Header().Set("Upgrade", wire.Upgrade)
		return problem(http.StatusUpgradeRequired, "upgrade", "want Connection: Upgrade and Upgrade: %s", wire.Upgrade)
	}
	c, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return problem(http.StatusUpgradeRequired, "upgrade", "this connection cannot be upgraded")
	}
	defer func() { _ = c.Close() }()
	if !s.upgraded.add() {
		return nil
	}
	defer s.upgraded.remove()
	defer context.AfterFunc(s.ctx, func() { _ = c.SetReadDeadline(time.Now()) })()
	_ = c.SetDeadline(time.Now().Add(writeTime))
	if _, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+wire.Upgrade+"\r\n\r\n"); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	var renewed time.Time // when the deadline for the next call was last set
	for {
		if now := time.Now(); now.Sub(renewed) > idleTime/4 {
			renewed = now
			_ = c.SetReadDeadline(now.Add(idleTime))
			if s.ctx.Err() != nil {
				_ = c.SetReadDeadline(now)
			}
		}
		bodyDeadline, ok := s.call(c, both.Reader, who, r)
		if !ok {
			return nil
		}
		if bodyDeadline {
			renewed = time.Time{}
		}
	}
}

// call answers one call. ok is false at the end of the connection. bodyDeadline says that the
// connection's deadline is still that of the call's body.
func (s *Server) call(c net.Conn, in *bufio.Reader, who *access.Who, r *http.Request) (bodyDeadline, ok bool) {
	size, err := binary.ReadUvarint(in)
	if err != nil || size > maxCall {
		return false, false
	}
	m := scratches.Get().(*scratch)
	defer m.release()
	if cap(m.in) < int(size) {
		m.in = make([]byte, 0, size)
	}
	m.in = m.in[:size]
	if in.Buffered() < len(m.in) {
		bodyDeadline = true
		_ = c.SetReadDeadline(time.Now().Add(bodyTime))
	}
	if _, err := io.ReadFull(in, m.in); err != nil {
		return false, false
	}
	b := append(m.out[:0], make([]byte, wire.Room)...)
	b = append(b, wire.KindReply)
	var answer []byte
	if !s.stillAllowed(r, who) {
		return false, false // the token has expired or was removed
	}
	answer, err = s.answer(context.Background(), m, b, who, r)
	if err != nil {
		s.auditRefused(r, who, err)
		s.noteFailure(r.Context(), err)
		p := problemOf(err)
		if p.Status == http.StatusInternalServerError {
			s.log.Error("internal error", "path", r.URL.Path, "error", err)
		}
		text, _ := json.Marshal(p) // never fails: it has only texts and numbers
		answer = append(append(b[:wire.Room], wire.KindProblem), text...)
	}
	m.out = answer
	_ = c.SetWriteDeadline(time.Now().Add(writeTime))
	_, err = c.Write(wire.WithLength(answer))
	return bodyDeadline, err == nil
}
