package semagrpc_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sema"
	"sema/contrib/grpc"
	"sema/sematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must ends the test if there is an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// patience bounds every wait of a test.
const patience = time.Minute

// until waits until something is so that no event tells.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			tb.Fatalf("%s: not so after %v", what, patience)
		}
	}
}

// within is a context that ends after patience, and with the test.
func within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

const (
	unary  = "/test.Service/Unary"
	stream = "/test.Service/Stream"
	upload = "/test.Service/Upload"
)

// service is a server's side, as the test at hand wants it.
type service struct {
	unary  func(context.Context, string) (string, error)
	stream func(grpc.ServerStream) error // of Stream and Upload
}

var description = grpc.ServiceDesc{
	ServiceName: "test.Service",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := decode(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, in any) (any, error) {
			out, err := srv.(*service).unary(ctx, in.(*wrapperspb.StringValue).Value)
			return wrapperspb.String(out), err
		}
		if interceptor == nil {
			return handle(ctx, in)
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: unary}, handle)
	}}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Stream", Handler: func(srv any, s grpc.ServerStream) error { return srv.(*service).stream(s) }, ServerStreams: true, ClientStreams: true},
		{StreamName: "Upload", Handler: func(srv any, s grpc.ServerStream) error { return srv.(*service).stream(s) }, ClientStreams: true},
	},
}

// serve runs a service and connects to it.
func serve(t testing.TB, s *service, server []grpc.ServerOption, client ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	g := grpc.NewServer(server...)
	g.RegisterService(&description, s)
	ended := make(chan error)
	go func() { ended <- g.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///test", append(client,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	must(t, err)
	t.Cleanup(func() {
		must(t, conn.Close())
		g.Stop()
		if err := <-ended; !errors.Is(err, grpc.ErrServerStopped) { // it is stopped before it began
			must(t, err)
		}
	})
	return conn
}

// atServer and atClient have the limiter's interceptors on one side.
func atServer(t *testing.T, s *service, l *semagrpc.Limiter) *grpc.ClientConn {
	return serve(t, s, []grpc.ServerOption{grpc.UnaryInterceptor(l.UnaryServer), grpc.StreamInterceptor(l.StreamServer)})
}

func atClient(t *testing.T, s *service, l *semagrpc.Limiter) *grpc.ClientConn {
	return serve(t, s, nil, grpc.WithUnaryInterceptor(l.UnaryClient), grpc.WithStreamInterceptor(l.StreamClient))
}

var sides = map[string]func(*testing.T, *service, *semagrpc.Limiter) *grpc.ClientConn{"server": atServer, "client": atClient}

// eachSide runs a test with the limiter at the server, and at the client, in
// virtual time.
func eachSide(t *testing.T, f func(t *testing.T, connect func(*testing.T, *service, *semagrpc.Limiter) *grpc.ClientConn)) {
	for name, connect := range sides {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, connect) }) })
	}
}

func call(ctx context.Context, conn *grpc.ClientConn, text string) (string, error) {
	out := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, unary, wrapperspb.String(text), out)
	return out.Value, err
}

func open(ctx context.Context, conn *grpc.ClientConn, method string) (grpc.ClientStream, error) {
	desc := description.Streams[0]
	if method == upload {
		desc = description.Streams[1]
	}
	return conn.NewStream(ctx, &desc, method)
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("%v: code %v, want %v", err, got, want)
	}
}

// limited is a limiter of a semaphore called calls.
func limited(t *testing.T, limit int, l semagrpc.Limit) (*sematest.Engine, *semagrpc.Limiter) {
	t.Helper()
	e := sematest.New(t)
	s, err := sema.New(e, "calls", limit, nil)
	must(t, err)
	l.Semaphore = s
	limiter, err := semagrpc.New(l)
	must(t, err)
	return e, limiter
}
