package semagrpc

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sema"
)

// marked is a permit that notes whether its hold went badly.
type marked struct{ bad *bool }

func (marked) Context(parent context.Context) context.Context { return parent }
func (marked) Err() error                                     { return nil }
func (m marked) Overloaded()                                  { *m.bad = true }
func (marked) Release() error                                 { return nil }

func TestErrorsMarkOverload(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errors.New("else"): false, status.Error(codes.NotFound, ""): false, context.Canceled: false,
		status.Error(codes.ResourceExhausted, ""): true, status.Error(codes.Unavailable, ""): true,
		status.Error(codes.DeadlineExceeded, ""): true, context.DeadlineExceeded: true,
	} {
		bad := false
		acquire := func(context.Context, []string, ...sema.AcquireOption) (Permit, error) { return marked{&bad}, nil }
		l, e := New(Limit{Acquire: acquire})
		if e != nil {
			t.Fatal(e)
		}
		_, got := l.UnaryServer(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/x/y"}, func(context.Context, any) (any, error) { return nil, err })
		if got != err || bad != want {
			t.Errorf("%v: marked %v, want %v; the call gave %v", err, bad, want, got)
		}
		bad = false
		h := &held{of: &admitted{permit: marked{&bad}, overloaded: overloads}, cancel: func() {}, done: make(chan struct{})}
		if _ = h.over(err); bad != want {
			t.Errorf("a stream that ended with %v: marked %v, want %v", err, bad, want)
		}
	}
	bad := false
	l, e := New(Limit{Acquire: func(context.Context, []string, ...sema.AcquireOption) (Permit, error) { return marked{&bad}, nil }, Overloaded: func(error) bool { return false }})
	if e != nil {
		t.Fatal(e)
	}
	_, _ = l.UnaryServer(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, status.Error(codes.Unavailable, "") })
	if bad {
		t.Error("marked, though the function says no")
	}
}
