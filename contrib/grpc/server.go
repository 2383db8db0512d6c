package semagrpc

import (
	"context"

	"google.golang.org/grpc"
)

// UnaryServer is a grpc.UnaryServerInterceptor. The handler's context ends when
// the permit is lost; whatever the handler returns, the call then fails with
// Aborted.
func (l *Limiter) UnaryServer(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if l.limit.Skip(ctx, info.FullMethod) {
		return handler(ctx, request)
	}
	a, err := l.enter(ctx, info.FullMethod, request)
	if err != nil {
		return nil, err
	}
	defer a.leave()
	response, err := handler(a.permit.Context(ctx), request)
	if err := a.outcome(err); err != nil {
		return nil, err
	}
	return response, nil
}

// StreamServer is a grpc.StreamServerInterceptor. The permit is held until the
// handler returns. When it is lost, the stream's context ends, and a handler that
// waits for a message, or to send one, gets an error with code Aborted.
func (l *Limiter) StreamServer(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	if l.limit.Skip(ctx, info.FullMethod) {
		return handler(server, stream)
	}
	a, err := l.enter(ctx, info.FullMethod, nil)
	if err != nil {
		return err
	}
	defer a.leave()
	return a.outcome(handler(server, &serverStream{stream, a.permit.Context(ctx), a}))
}

// serverStream is a stream that ends with its permit.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
	of  *admitted
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) SendMsg(m any) error { return s.while(s.ServerStream.SendMsg, m) }

func (s *serverStream) RecvMsg(m any) error { return s.while(s.ServerStream.RecvMsg, m) }

// while does something with a message unless the stream's context ends before.
// Nothing but the handler's return ends what grpc is at: so that goes on, and
// ends soon after.
func (s *serverStream) while(do func(any) error, m any) error {
	if err := s.over(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- do(m) }()
	select {
	case err := <-done:
		return err
	case <-s.ctx.Done():
		if err := s.over(); err != nil {
			return err
		}
		return <-done // the call itself is over, and grpc says how
	}
}

// over is an error if the permit was lost.
func (s *serverStream) over() error {
	if s.ctx.Err() == nil {
		return nil
	}
	return s.of.outcome(nil)
}
