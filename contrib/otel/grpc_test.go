package otelsema_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"sema"
	"sema/contrib/grpc"
	"sema/contrib/otel"
	"sema/each"
	"sema/engines/memengine"
	"sema/metrics"
)

// acquires is semagrpc.Limit's Acquire.
type acquires = func(context.Context, []string, ...sema.AcquireOption) (semagrpc.Permit, error)

// gRPC calls, unary and streams, have spans for the wait and the hold: of one
// semaphore, and of keys. What the handler does is below the hold.
func TestSpansOfCalls(t *testing.T) {
	for name, acquire := range map[string]func(x *sdk) acquires{
		"llm": func(x *sdk) acquires {
			sem := x.semaphore(5)
			return func(ctx context.Context, _ []string, options ...sema.AcquireOption) (semagrpc.Permit, error) {
				return x.telemetry.Acquire(ctx, sem, options...)
			}
		},
		"tenants/acme": func(x *sdk) acquires {
			e := memengine.New()
			group, err := each.New(e, "tenants", 1, nil)
			must(t, err)
			t.Cleanup(func() { _, _ = group.Close(), e.Close() })
			return func(ctx context.Context, key []string, options ...sema.AcquireOption) (semagrpc.Permit, error) {
				return x.telemetry.AcquireEach(ctx, group, key[0], append(options, sema.For(key[1:]...))...)
			}
		},
		"shared": func(x *sdk) acquires {
			sem, err := sema.New(memengine.New(), "shared", 5, &sema.Options{Caps: sema.Caps{1}})
			must(t, err)
			t.Cleanup(func() { _ = sem.Close() })
			return func(ctx context.Context, key []string, options ...sema.AcquireOption) (semagrpc.Permit, error) {
				return x.telemetry.Acquire(ctx, sem, append(options, sema.For(key...))...)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newSDK(t)
			l, err := semagrpc.New(semagrpc.Limit{Acquire: acquire(x), Key: func(context.Context, string) []string { return []string{"acme", "alice"} }})
			must(t, err)
			client := x.serve(t, l)
			check := x.spansOf(func() {
				_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
				must(t, err)
			})
			watch := x.spansOf(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
				must(t, err)
				_, err = s.Recv()
				must(t, err)
			})
			for _, spans := range []map[string]sdktrace.ReadOnlySpan{check, watch} {
				wait, hold, call := spans[otelsema.SpanAcquire], spans[otelsema.SpanHold], spans["call"].SpanContext()
				if !wait.Parent().Equal(call) || !hold.Parent().Equal(call) || !spans["work"].Parent().Equal(hold.SpanContext()) {
					t.Errorf("spans are not where they belong: %v", spans)
				}
				if hold.Status().Code != codes.Unset || !slices.Contains(hold.Attributes(), attribute.String(metrics.LabelName, name)) {
					t.Errorf("the hold: %v, %v", hold.Status(), hold.Attributes())
				}
				key := ""
				for _, a := range hold.Attributes() {
					if a.Key == otelsema.AttributeKey {
						key = a.Value.AsString()
					}
				}
				if want := map[string]string{"tenants/acme": "alice", "shared": "acme/alice"}[name]; key != want {
					t.Errorf("the hold has key %q, want %q", key, want)
				}
			}
		})
	}
}

// serve runs a server that is limited and has spans around and within, and connects
// to it.
func (x *sdk) serve(t *testing.T, l *semagrpc.Limiter) grpc_health_v1.HealthClient {
	unary := func(name string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, span := x.tracer.Start(ctx, name)
			defer span.End()
			return next(ctx, r)
		}
	}
	stream := func(name string) grpc.StreamServerInterceptor {
		return func(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			ctx, span := x.tracer.Start(s.Context(), name)
			defer span.End()
			return next(server, &spanned{s, ctx})
		}
	}
	g := grpc.NewServer(
		grpc.ChainUnaryInterceptor(unary("call"), l.UnaryServer, unary("work")),
		grpc.ChainStreamInterceptor(stream("call"), l.StreamServer, stream("work")),
	)
	grpc_health_v1.RegisterHealthServer(g, health.NewServer())
	listener := bufconn.Listen(1 << 20)
	ended := make(chan error)
	go func() { ended <- g.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	must(t, err)
	t.Cleanup(func() {
		must(t, conn.Close())
		g.Stop()
		if err := <-ended; !errors.Is(err, grpc.ErrServerStopped) { // it is stopped before it began
			must(t, err)
		}
	})
	return grpc_health_v1.NewHealthClient(conn)
}

// spanned is a stream with a span in its context.
type spanned struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *spanned) Context() context.Context { return s.ctx }

// spansOf makes a call, and returns its four spans when they have ended.
func (x *sdk) spansOf(call func()) map[string]sdktrace.ReadOnlySpan {
	x.t.Helper()
	x.spans.Reset()
	call()
	until(x.t, "all spans have ended", func() bool { return len(x.spans.Ended()) == 4 })
	spans := map[string]sdktrace.ReadOnlySpan{}
	for _, span := range x.spans.Ended() {
		spans[span.Name()] = span
	}
	return spans
}
