package semagrpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"sema"
)

// marked is a permit that notes whether its hold went badly.
type marked struct {
	bad   *bool
	after *time.Duration
}

func (marked) Context(parent context.Context) context.Context { return parent }
func (marked) Err() error                                     { return nil }
func (m marked) Overloaded()                                  { *m.bad = true }
func (m marked) RetryAfter(d time.Duration)                   { *m.after = d }
func (marked) Release() error                                 { return nil }

func TestErrorsMarkOverload(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errors.New("else"): false, status.Error(codes.NotFound, ""): false, context.Canceled: false,
		status.Error(codes.ResourceExhausted, ""): true, status.Error(codes.Unavailable, ""): true,
		status.Error(codes.DeadlineExceeded, ""): true, context.DeadlineExceeded: true,
	} {
		bad := false
		acquire := func(context.Context, []string, ...sema.AcquireOption) (Permit, error) { return marked{bad: &bad}, nil }
		l, e := New(Limit{Acquire: acquire})
		if e != nil {
			t.Fatal(e)
		}
		_, got := l.UnaryServer(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/x/y"}, func(context.Context, any) (any, error) { return nil, err })
		if got != err || bad != want {
			t.Errorf("%v: marked %v, want %v; the call gave %v", err, bad, want, got)
		}
		bad = false
		h := &held{of: &admitted{permit: marked{bad: &bad}, overloaded: overloads}, cancel: func() {}, done: make(chan struct{})}
		if _ = h.over(err); bad != want {
			t.Errorf("a stream that ended with %v: marked %v, want %v", err, bad, want)
		}
	}
	bad := false
	l, e := New(Limit{Acquire: func(context.Context, []string, ...sema.AcquireOption) (Permit, error) { return marked{bad: &bad}, nil }, Overloaded: func(error) bool { return false }})
	if e != nil {
		t.Fatal(e)
	}
	_, _ = l.UnaryServer(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, status.Error(codes.Unavailable, "") })
	if bad {
		t.Error("marked, though the function says no")
	}
}

// What another side says of when to call again is heard by all; what it does not say is not made up.
func TestClientsHearRetryInfo(t *testing.T) {
	says := func(code codes.Code) error {
		s, err := status.New(code, "").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		return s.Err()
	}
	for err, want := range map[error]time.Duration{
		says(codes.ResourceExhausted): time.Minute, says(codes.Unavailable): time.Minute, says(codes.NotFound): 0, nil: 0, errors.New("else"): 0,
		status.Error(codes.ResourceExhausted, ""): 0,
	} {
		bad, after := false, time.Duration(0)
		l, e := New(Limit{Acquire: func(context.Context, []string, ...sema.AcquireOption) (Permit, error) {
			return marked{&bad, &after}, nil
		}})
		if e != nil {
			t.Fatal(e)
		}
		_, _ = l.UnaryServer(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, err })
		if after != 0 {
			t.Errorf("a server that says %v has its own calls wait", err)
		}
		_ = l.UnaryClient(t.Context(), "/x/y", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err })
		if after != want {
			t.Errorf("%v: %v, want %v", err, after, want)
		}
		after = 0
		h := &held{of: &admitted{permit: marked{&bad, &after}, overloaded: overloads}, cancel: func() {}, done: make(chan struct{})}
		if _ = h.over(err); after != want {
			t.Errorf("a stream that ended with %v: %v, want %v", err, after, want)
		}
	}
}
