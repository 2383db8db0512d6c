package semagrpc_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sema"
	"sema/contrib/grpc"
	"sema/engines/memengine"
)

// What a message of a stream costs with the server's interceptor, and without.
func BenchmarkStream(b *testing.B) {
	s, err := sema.New(memengine.New(), "calls", 10, nil)
	if err != nil {
		b.Fatal(err)
	}
	l, err := semagrpc.New(semagrpc.Limit{Semaphore: s})
	if err != nil {
		b.Fatal(err)
	}
	echo := &service{stream: func(s grpc.ServerStream) error {
		m := new(wrapperspb.StringValue)
		for {
			if err := s.RecvMsg(m); err != nil {
				return nil
			}
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	}}
	for name, options := range map[string][]grpc.ServerOption{"bare": nil, "limited": {grpc.StreamInterceptor(l.StreamServer)}} {
		b.Run(name, func(b *testing.B) {
			conn := serve(b, echo, options)
			stream, err := open(b.Context(), conn, stream)
			must(b, err)
			m := wrapperspb.String("x")
			for b.Loop() {
				must(b, stream.SendMsg(m))
				must(b, stream.RecvMsg(m))
			}
			must(b, stream.CloseSend())
		})
	}
	_ = s.Close()
}
