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

	"sema/internal/wire"
)

// lines are the connections of Go clients that carry calls without the rest of
// HTTP around each, which would take longer than the call.
type lines struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
	ended  sync.WaitGroup
}

func (l *lines) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.open == nil {
		l.open = map[net.Conn]struct{}{}
	}
	l.open[c] = struct{}{}
	l.ended.Add(1)
	return true
}

func (l *lines) remove(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	l.ended.Done()
}

// patience gives a client so long for its next call, unless the server closes.
func (l *lines) patience(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := time.Now().Add(idleTime)
	if l.closed {
		until = time.Now()
	}
	_ = c.SetReadDeadline(until)
}

// close ends all lines. Calls at hand are carried out and answered.
func (l *lines) close() {
	l.mu.Lock()
	l.closed = true
	for c := range l.open {
		_ = c.SetReadDeadline(time.Now())
	}
	l.mu.Unlock()
	l.ended.Wait()
}

// calls makes a line of a request's connection, and answers its calls until the
// client closes it.
func (s *Server) calls(w http.ResponseWriter, r *http.Request, who *Who) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), wire.Upgrade) {
		w.Header().Set("Upgrade", wire.Upgrade)
		return problem(http.StatusUpgradeRequired, "upgrade", "want Connection: Upgrade and Upgrade: %s", wire.Upgrade)
	}
	c, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return problem(http.StatusUpgradeRequired, "upgrade", "this connection cannot be upgraded")
	}
	defer func() { _ = c.Close() }()
	if !s.lines.add(c) {
		return nil
	}
	defer s.lines.remove(c)
	_ = c.SetDeadline(time.Now().Add(writeTime))
	if _, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+wire.Upgrade+"\r\n\r\n"); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	var patient time.Time // when it was last given time for the next call
	for {
		if now := time.Now(); now.Sub(patient) > idleTime/4 {
			patient = now
			s.lines.patience(c)
		}
		hurried, ok := s.call(c, both.Reader, who, r)
		if !ok {
			return nil
		}
		if hurried {
			patient = time.Time{}
		}
	}
}

// call answers one call; ok is false if there is none. hurried says that the
// connection has a deadline that is meant for the call's body.
func (s *Server) call(c net.Conn, in *bufio.Reader, who *Who, r *http.Request) (hurried, ok bool) {
	size, err := binary.ReadUvarint(in)
	if err != nil || size > maxCall {
		return false, false
	}
	m := scratches.Get().(*scratch)
	defer m.back()
	if cap(m.in) < int(size) {
		m.in = make([]byte, 0, size)
	}
	m.in = m.in[:size]
	if in.Buffered() < len(m.in) {
		hurried = true
		_ = c.SetReadDeadline(time.Now().Add(bodyTime))
	}
	if _, err := io.ReadFull(in, m.in); err != nil {
		return false, false
	}
	// Room for the length, which is known in the end.
	b := append(m.out[:0], make([]byte, binary.MaxVarintLen64)...)
	b = append(b, wire.KindReply)
	var answer []byte
	if !s.still(r, who) {
		return false, false // it has to show a token that is one
	}
	answer, err = s.answer(context.Background(), m, b, who, r)
	if err != nil {
		s.refused(r, who, err)
		p := problemOf(err)
		if p.Status == http.StatusInternalServerError {
			s.log.Error("internal error", "path", r.URL.Path, "error", err)
		}
		text, _ := json.Marshal(p) // texts and numbers
		answer = append(append(b[:binary.MaxVarintLen64], wire.KindProblem), text...)
	}
	m.out = answer
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(len(answer)-binary.MaxVarintLen64))
	start := binary.MaxVarintLen64 - n
	copy(answer[start:], length[:n])
	_ = c.SetWriteDeadline(time.Now().Add(writeTime))
	_, err = c.Write(answer[start:])
	return hurried, err == nil
}
