package semahttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
)

// stream is a response that is still arriving, and what it holds. Its caller has
// it through a body only, so that the garbage collector can tell when the caller
// has dropped it.
type stream struct {
	ending
	inner    io.ReadCloser
	caller   context.Context // of the request as it came
	upgraded bool
}

// newStream makes the stream of a response. cancel ends the request. The pass is
// given back after the connection is closed. Otherwise the next request could overlap with
// this one at the upstream. http.Transport closes the connection within Close only if
// the context has ended before.
func newStream(p *pass, inner io.ReadCloser, caller context.Context, cancel func(), upgraded bool, abandoned func()) *stream {
	return &stream{
		ending: ending{pass: p, abandoned: abandoned, close: func() error { cancel(); return inner.Close() }},
		inner:  inner, caller: caller, upgraded: upgraded,
	}
}

// start makes the stream end with ctx, the context of the request, and when the
// returned body is garbage-collected.
func (s *stream) start(ctx context.Context) io.ReadCloser {
	b := &body{stream: s}
	if s.upgraded {
		// After an upgrade, the caller may end the context of the request.
		ctx = s.pass.context(context.WithoutCancel(s.caller))
	}
	watch(&s.ending, ctx, b)
	if _, ok := s.inner.(io.Writer); ok {
		return &writableBody{b}
	}
	return b
}

// failed is the error to give for one that inner gave.
func (s *stream) failed(err error) error {
	if over := s.pass.over(); over != nil {
		return fmt.Errorf("%w: %w", over, err)
	}
	// The end of the context may have closed inner before it could say why.
	if s.caller.Err() != nil && !s.upgraded {
		return context.Cause(s.caller)
	}
	return err
}

// body is a stream as its caller has it.
type body struct {
	*stream
	said error // what Read ended with, and says again
}

// Read reads. The last byte, an error, and the loss of the permit end the
// stream, but for one that was upgraded: only Close and loss end that.
func (b *body) Read(p []byte) (int, error) {
	defer runtime.KeepAlive(b)
	s := b.stream
	if over := s.pass.over(); over != nil {
		_ = s.end(false)
		return 0, over
	}
	if b.said != nil {
		return 0, b.said
	}
	n, err := s.inner.Read(p)
	if err == nil || s.upgraded {
		return n, err
	}
	if err != io.EOF {
		err = s.failed(err)
	}
	_ = s.end(false) // inner has told its error
	b.said = err
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer runtime.KeepAlive(b)
	return b.end(false)
}

// writableBody is the body of a response that switched protocols.
type writableBody struct{ *body }

// Write writes to the connection, unless the permit is lost.
func (b *writableBody) Write(p []byte) (int, error) {
	defer runtime.KeepAlive(b.body)
	if over := b.pass.over(); over != nil {
		_ = b.end(false)
		return 0, over
	}
	return b.inner.(io.Writer).Write(p)
}

var _ io.ReadWriteCloser = (*writableBody)(nil)
var _ http.RoundTripper = (*Transport)(nil)
