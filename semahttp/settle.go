package semahttp

import (
	"io"
	"net/http"
	"sync"

	"sema"
)

// settleBytes is how much of the end of a body Settle hands on.
const settleBytes = 4096

// Settle says what a request has used of rates, before its permit is given back: see sema.Permit.Used. The permit is in the
// context of a.Request; without one nothing happens. Settle changes a.Body. When that was read to its end, failed, or is closed, used is called
// once, with the last 4 kB that were read: a vendor's count of tokens stands there, also at the end of a stream. After 101 Switching Protocols
// it is called at each read, because either side may end the connection. It returns amounts by pool;
// nil if it cannot tell: then all that the permit took counts. Transport.Used does this for requests that are sent; call Settle in
// httputil.ReverseProxy.ModifyResponse, behind a Handler. What is read may be compressed: let Rewrite delete Accept-Encoding.
func Settle(a *http.Response, used func(a *http.Response, end []byte) map[string]int) {
	if a.Request == nil {
		return
	}
	p := sema.PermitFrom(a.Request.Context())
	if p == nil {
		return
	}
	m := &metered{ReadCloser: a.Body, told: func(end []byte) {
		for pool, n := range used(a, end) {
			p.Used(pool, n)
		}
	}}
	if a.Body == nil || a.Body == http.NoBody {
		m.tell()
		return
	}
	if w, ok := a.Body.(io.Writer); ok { // the protocol was switched
		m.each = true
		a.Body = struct {
			io.ReadCloser
			io.Writer
		}{m, w}
		return
	}
	a.Body = m
}

// metered is a body that tells its end.
type metered struct {
	io.ReadCloser
	told func(end []byte)
	each bool // also at each read

	mu   sync.Mutex // a Close may come while somebody reads
	end  []byte
	over bool
}

// Read implements io.Reader.
func (m *metered) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	m.mu.Lock()
	m.end = append(m.end, b[max(0, n-settleBytes):n]...)
	if more := len(m.end) - settleBytes; more > 0 {
		m.end = m.end[:copy(m.end, m.end[more:])]
	}
	m.mu.Unlock()
	if err != nil || m.each && n > 0 {
		m.tell()
	}
	return n, err
}

// Close implements io.Closer.
func (m *metered) Close() error {
	m.tell()
	return m.ReadCloser.Close()
}

func (m *metered) tell() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.over = !m.each
		m.told(m.end)
	}
}
