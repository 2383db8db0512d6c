package semagrpc

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// UnaryClient is a grpc.UnaryClientInterceptor. A call whose permit is lost is
// cancelled, and fails with Aborted. An answer of ResourceExhausted or Unavailable whose RetryInfo says when to call
// again is heard by all processes, here and for streams: nobody is granted a permit before, see sema.Permit.RetryAfter.
func (l *Limiter) UnaryClient(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if l.limit.Skip(ctx, method) {
		return invoke(ctx, method, request, reply, conn, options...)
	}
	a, err := l.enter(ctx, method, request)
	if err != nil {
		return err
	}
	defer a.leave()
	return a.answered(invoke(a.permit.Context(ctx), method, request, reply, conn, options...))
}

// StreamClient is a grpc.StreamClientInterceptor. The permit is held until the
// stream is over: RecvMsg has returned an error, io.EOF included, or the only
// answer; Header or SendMsg has failed; the context of the call has ended. An
// abandoned stream is cancelled once the garbage collector finds it. When the
// permit is lost, the stream is cancelled, and calls that wait for it fail with
// Aborted.
func (l *Limiter) StreamClient(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if l.limit.Skip(ctx, method) {
		return open(ctx, desc, conn, method, options...)
	}
	a, err := l.enter(ctx, method, nil)
	if err != nil {
		return nil, err
	}
	h := &held{of: a, abandoned: l.limit.Observer.Abandoned, done: make(chan struct{})}
	ctx, h.cancel = context.WithCancel(a.permit.Context(ctx))
	context.AfterFunc(ctx, h.release)
	inner, err := open(ctx, desc, conn, method, options...)
	if err != nil {
		err = a.answered(err)
		h.release()
		return nil, err
	}
	s := &clientStream{ClientStream: inner, held: h, single: !desc.ServerStreams}
	runtime.AddCleanup(s, (*held).abandon, h)
	return s, nil
}

// held is the permit of a stream, until it is released.
type held struct {
	of        *admitted
	cancel    context.CancelFunc
	abandoned func(Abandoned) // tells the observer; may be nil
	begun     atomic.Bool     // the first release
	done      chan struct{}   // closed when that is over
	lost      error           // known then
}

// release gives back the permit, and ends what is left of the stream, once: a second caller waits for
// that, by a channel and not by sync.Once, so that time goes on for tests with testing/synctest.
func (h *held) release() {
	if !h.begun.CompareAndSwap(false, true) {
		<-h.done
		return
	}
	defer close(h.done)
	h.lost = h.of.outcome(nil)
	h.of.leave()
	h.cancel()
}

// abandon ends a stream that nobody can read any more, unless it has ended. The
// garbage collector's goroutine calls it, so it leaves the rest to another.
func (h *held) abandon() {
	if h.begun.Load() {
		return
	}
	h.cancel()
	go func() {
		h.release()
		if h.abandoned != nil {
			h.abandoned(Abandoned{h.of.method, h.of.key})
		}
	}()
}

// over gives back the permit of a stream that ended with err, and returns what
// it ended with.
func (h *held) over(err error) error {
	_ = h.of.answered(err) // marks the permit
	h.release()
	if h.lost != nil {
		return h.lost
	}
	return err
}

// clientStream is a stream whose end gives back its permit.
type clientStream struct {
	grpc.ClientStream
	held   *held
	single bool // there is one answer
}

func (s *clientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil {
		err = s.held.over(err)
	}
	return md, err
}

func (s *clientStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err != nil && err != io.EOF { // after io.EOF RecvMsg says how the stream ended
		err = s.held.over(err)
	}
	return err
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil || s.single {
		err = s.held.over(err)
	}
	return err
}
