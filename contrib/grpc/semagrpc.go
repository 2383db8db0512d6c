// Package semagrpc limits gRPC calls by semaphores, at the server or the client.
//
//	limiter, err := semagrpc.New(semagrpc.Limit{Semaphore: sem, Wait: time.Second})
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(limiter.UnaryServer),
//		grpc.StreamInterceptor(limiter.StreamServer),
//	)
//
// A call waits for its permit before it begins, and has it until it ends: a
// stream until its last message. What a call without a permit fails with:
//
//	ResourceExhausted   nothing was free in time (Limit.Wait); later there may be
//	Unavailable         the engine cannot be reached, or was closed
//	Aborted             the permit was lost in the midst of the call, which was cancelled
//	InvalidArgument     the call's key is none (see sema.Keys.Name), or its weight is
//	                    none or above the limit
//	FailedPrecondition  the engine has another limit, and sema.Options say to refuse that
//	DeadlineExceeded, Canceled
//	                    the call's own context ended while it waited
//
// On the side where the interceptor is, the errors are also sema's: errors.Is and
// errors.As find sema.ErrUnavailable, sema.ErrLost, *sema.EngineError.
package semagrpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sema"
)

// NoWait is for Limit.Wait: a call that finds nothing free fails at once.
const NoWait = time.Duration(-1)

// Limit says which calls share which semaphore. The zero value of each field is
// its default; one of Semaphore and Keys has to be there.
type Limit struct {
	// Semaphore limits all calls together.
	Semaphore *sema.Semaphore

	// Keys limits the calls of each key.
	Keys *sema.Keys

	// Key is a call's key: its tenant, its host. Default: method, the full name
	// such as /service/method, is the key.
	Key func(ctx context.Context, method string) string

	// Skip says which calls need no permit, such as those of health checks.
	// Default: none.
	Skip func(ctx context.Context, method string) bool

	// Weight is how much of the limit a call takes. request is the message of a
	// unary call, and nil for a stream. Default: 1.
	Weight func(ctx context.Context, method string, request any) int

	// Wait is how long a call waits for its permit, or NoWait. Default: as long
	// as its own context lets it.
	Wait time.Duration
}

// Limiter has the interceptors. Its methods are what grpc.UnaryInterceptor,
// grpc.StreamInterceptor, grpc.WithUnaryInterceptor and
// grpc.WithStreamInterceptor take, and their Chain variants.
type Limiter struct{ limit Limit }

// New makes the interceptors for a limit. It fails with a *sema.ArgumentError on
// one that contradicts itself. The semaphores stay the caller's, to be closed
// after the server or the connection.
func New(limit Limit) (*Limiter, error) {
	switch {
	case (limit.Semaphore == nil) == (limit.Keys == nil):
		return nil, refused("limit", limit.Semaphore, "either Semaphore or Keys")
	case limit.Key != nil && limit.Keys == nil:
		return nil, refused("limit with Key", limit.Keys, "Keys")
	case limit.Wait < 0 && limit.Wait != NoWait:
		return nil, refused("wait", limit.Wait, "0 for as long as the call's context lets it, NoWait, or more than 0")
	}
	if limit.Key == nil {
		limit.Key = func(_ context.Context, method string) string { return method }
	}
	if limit.Weight == nil {
		limit.Weight = func(context.Context, string, any) int { return 1 }
	}
	if limit.Skip == nil {
		limit.Skip = func(context.Context, string) bool { return false }
	}
	return &Limiter{limit}, nil
}

func refused(what string, value any, want string) error {
	return &sema.ArgumentError{Package: "semagrpc", What: what, Value: value, Want: want}
}

// permit is what the two kinds of permits have in common.
type permit interface {
	Context(context.Context) context.Context
	Err() error
	Release() error
}

// acquire takes a call's permit.
func (l *Limiter) acquire(ctx context.Context, method string, request any) (permit, error) {
	within := ctx
	if l.limit.Wait > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, l.limit.Wait)
		defer cancel()
	}
	p, err := l.take(within, method, l.limit.Weight(ctx, method, request))
	if err != nil {
		return nil, explain(ctx, err)
	}
	return p, nil
}

func (l *Limiter) take(ctx context.Context, method string, n int) (permit, error) {
	if s := l.limit.Semaphore; s != nil {
		if l.limit.Wait == NoWait {
			return of(s.TryAcquireN(ctx, n))
		}
		return of(s.AcquireN(ctx, n))
	}
	key := l.limit.Key(ctx, method)
	if l.limit.Wait == NoWait {
		return of(l.limit.Keys.TryAcquireN(ctx, key, n))
	}
	return of(l.limit.Keys.AcquireN(ctx, key, n))
}

// of is p as a permit.
func of[P permit](p P, err error) (permit, error) { return p, err }

// failure is an error of sema with the status that a call fails with.
type failure struct {
	status *status.Status
	err    error
}

// Error is the status and what sema said.
func (f *failure) Error() string { return f.status.String() }

// GRPCStatus is what grpc sends.
func (f *failure) GRPCStatus() *status.Status { return f.status }

// Unwrap is sema's own error.
func (f *failure) Unwrap() error { return f.err }

func fails(code codes.Code, err error) error {
	return &failure{status.New(code, err.Error()), err}
}

// explain says why a call has no permit. ctx is the call's own context.
func explain(ctx context.Context, err error) error {
	var engine *sema.EngineError
	var argument *sema.ArgumentError
	var heavy *sema.WeightError
	var limit *sema.LimitError
	switch {
	case ctx.Err() != nil:
		return fails(status.FromContextError(ctx.Err()).Code(), err)
	case errors.As(err, &engine), errors.Is(err, sema.ErrClosed), errors.Is(err, sema.ErrLost):
		return fails(codes.Unavailable, err)
	case errors.Is(err, sema.ErrUnavailable):
		return fails(codes.ResourceExhausted, err)
	case errors.As(err, &argument) && argument.What != "limit", errors.As(err, &heavy):
		return fails(codes.InvalidArgument, err)
	case errors.As(err, &limit):
		return fails(codes.FailedPrecondition, err)
	}
	return fails(codes.Internal, err)
}

// outcome is what a call ends with that ended with err: if its permit was lost
// meanwhile, that it was.
func outcome(p permit, err error) error {
	if lost := p.Err(); lost != nil && !errors.Is(lost, sema.ErrReleased) {
		return fails(codes.Aborted, lost)
	}
	return err
}
