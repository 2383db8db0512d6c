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
//	ResourceExhausted   nothing was free in time (Limit.Wait); later there may be. A call
//	                    that is refused at once has a google.rpc.RetryInfo, which says when
//	Unavailable         the engine cannot be reached (see Limit.Outage), or was closed
//	Aborted             the permit was lost in the midst of the call, which was cancelled
//	InvalidArgument     the call's key is none (see sema.For, each.Group), or its weight is
//	                    none or above the limit
//	FailedPrecondition  the engine has another limit, and sema.Options say to refuse that
//	DeadlineExceeded, Canceled
//	                    the call's own context ended while it waited
//
// On the side where the interceptor is, the errors are also sema's: errors.Is and
// errors.As find sema.ErrBusy, *sema.BusyError, sema.ErrLost, sema.ErrEngine.
package semagrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"sema"
	"sema/admit"
	"sema/each"
	"sema/engine"
)

// NoWait is for Limit.Wait: a call that finds nothing free fails at once.
const NoWait = admit.NoWait

// Limit says which calls share which semaphore. The zero value of each field is
// its default; one of Semaphore, Group and Acquire has to be there.
type Limit struct {
	// Semaphore limits all calls together. With Key it shares them among the keys.
	Semaphore *sema.Semaphore

	// Group limits the calls of each name by themselves. The name is the first of the key; further names
	// of the key are a key within that limit.
	Group *each.Group

	// Acquire takes a call's permit, for what neither of them does: spans,
	// or a semaphore of the call's own. The options are for that semaphore: the call's weight, how
	// long the engine may say nothing, and with NoWait that the call does not wait. Acquire
	// waits until ctx ends. On an error nothing is held. It may be called in the background as well,
	// with the values of a call's context, to learn whether an engine that was away is back.
	Acquire func(ctx context.Context, key []string, options ...sema.AcquireOption) (Permit, error)

	// Key is a call's key, as the names that sema.For takes: its tenant, its host, its organisation and
	// user. nil is no key. Default: method, the full name such as /service/method, is the key for Group
	// and Acquire; a call has none for Semaphore.
	Key func(ctx context.Context, method string) []string

	// Skip says which calls need no permit, such as those of health checks.
	// Default: none.
	Skip func(ctx context.Context, method string) bool

	// Weight is how much of the limit a call takes. request is the message of a
	// unary call, and nil for a stream. Default: 1.
	Weight func(ctx context.Context, method string, request any) int

	// Wait is how long a call waits for its permit, or NoWait. A call that cannot be served
	// by then is refused at once; see sema.BusyError. Default: 0, as long as its own context
	// lets it.
	Wait time.Duration

	// Outage says what happens when the engine does not answer: admit.Open, admit.Local.
	// Default admit.Closed: the call fails with Unavailable.
	Outage admit.Policy

	// Overloaded says which errors of a call show that whatever serves it has too much to
	// do, for a semaphore with sema.Options.Adapt. Default: those with code ResourceExhausted,
	// Unavailable or DeadlineExceeded.
	Overloaded func(err error) bool

	// Observer is told what nobody else is told. Default: nobody.
	Observer Observer
}

// Permit is what a call holds while it runs: a *sema.Permit, or one that is made of
// some.
type Permit = admit.Permit

// Limiter has the interceptors. Its methods are what grpc.UnaryInterceptor,
// grpc.StreamInterceptor, grpc.WithUnaryInterceptor and
// grpc.WithStreamInterceptor take, and their Chain variants.
type Limiter struct {
	limit Limit
	gate  admit.Gate
}

// New makes the interceptors for a limit. It fails with a *sema.ArgumentError on
// one that contradicts itself. The semaphores stay the caller's, to be closed
// after the server or the connection.
func New(limit Limit) (*Limiter, error) {
	given := 0
	for _, is := range []bool{limit.Semaphore != nil, limit.Group != nil, limit.Acquire != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, &sema.ArgumentError{Package: "semagrpc", What: "limit", Value: fmt.Sprintf("with %d of them", given), Want: "one of Semaphore, Group and Acquire"}
	}
	l := &Limiter{limit: limit}
	if err := l.options().Check("semagrpc"); err != nil {
		return nil, err
	}
	if limit.Weight == nil {
		l.limit.Weight = func(context.Context, string, any) int { return 1 }
	}
	if limit.Overloaded == nil {
		l.limit.Overloaded = overloads
	}
	if limit.Skip == nil {
		l.limit.Skip = func(context.Context, string) bool { return false }
	}
	if limit.Acquire == nil {
		l.limit.Acquire = admit.ByKey(limit.Semaphore, limit.Group)
	}
	if s := limit.Semaphore; s != nil && limit.Key == nil { // the key is for reports alone
		l.limit.Key = func(context.Context, string) []string { return []string{s.Name()} }
		l.limit.Acquire = func(ctx context.Context, _ []string, options ...sema.AcquireOption) (Permit, error) {
			return s.Acquire(ctx, options...)
		}
	} else if limit.Key == nil {
		l.limit.Key = func(_ context.Context, method string) []string { return []string{method} }
	}
	return l, nil
}

func (l *Limiter) options() admit.Options {
	return admit.Options{Wait: l.limit.Wait, Outage: l.limit.Outage, Told: l.limit.Observer.Outage}
}

// admitted is a call that runs.
type admitted struct {
	method     string
	key        engine.Key
	permit     Permit           // or what its policy gave it
	overloaded func(error) bool // see Limit
}

// enter waits until a call may run.
func (l *Limiter) enter(ctx context.Context, method string, request any) (*admitted, error) {
	key := engine.Given(l.limit.Key(ctx, method))
	a := &admitted{method: method, key: engine.Key(strings.Join(key, engine.KeySeparator)), overloaded: l.limit.Overloaded}
	n := l.limit.Weight(ctx, method, request)
	var err error
	a.permit, err = l.gate.Enter(ctx, l.options(), admit.Request{
		Name: string(a.key),
		Acquire: func(ctx context.Context, options ...sema.AcquireOption) (Permit, error) {
			return l.limit.Acquire(ctx, key, append(options, sema.Weight(n))...)
		},
		Failed: func(err error, admitted bool) {
			if tell := l.limit.Observer.EngineFailed; tell != nil {
				tell(EngineFailed{method, a.key, err, admitted})
			}
		},
	})
	if err != nil {
		return nil, explain(ctx, err)
	}
	return a, nil
}

// leave gives back what a call held, which has ended.
func (a *admitted) leave() { admit.Release(a.permit) }

// outcome is what a call ends with that ended with err: if its permit was lost
// meanwhile, that it was.
func (a *admitted) outcome(err error) error {
	if lost := a.permit.Err(); lost != nil && !errors.Is(lost, sema.ErrReleased) {
		return fails(codes.Aborted, lost)
	}
	if err != nil && a.overloaded(err) {
		admit.Overloaded(a.permit)
	}
	return err
}

// answered is outcome of a call to another side, which may say when it wants the next one.
func (a *admitted) answered(err error) error {
	if _, own := errors.AsType[*failure](err); own { // of another Limiter within this one, and not of the other side
		return a.outcome(err)
	}
	switch s := status.Convert(err); s.Code() {
	case codes.ResourceExhausted, codes.Unavailable:
		for _, detail := range s.Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				admit.RetryAfter(a.permit, info.GetRetryDelay().AsDuration())
			}
		}
	}
	return a.outcome(err)
}

// overloads is the default of Limit.Overloaded.
func overloads(err error) bool {
	switch status.Code(err) {
	case codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded:
		return true
	}
	return status.FromContextError(err).Code() == codes.DeadlineExceeded
}

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

// retryAfter is a status that says when to try again.
func retryAfter(code codes.Code, busy *sema.BusyError) *status.Status {
	s := status.New(code, busy.Error())
	if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(busy.RetryAfter)}); err == nil {
		s = with
	}
	return s
}

// explain says why a call has no permit. ctx is the call's own context.
func explain(ctx context.Context, err error) error {
	var argument *sema.ArgumentError
	var heavy *sema.WeightError
	var limit *sema.LimitError
	var busy *sema.BusyError
	switch {
	case ctx.Err() != nil:
		return fails(status.FromContextError(ctx.Err()).Code(), err)
	case errors.Is(err, sema.ErrEngine), errors.Is(err, sema.ErrClosed), errors.Is(err, sema.ErrLost):
		return fails(codes.Unavailable, err)
	case errors.As(err, &busy) && busy.RetryAfter > 0:
		return &failure{retryAfter(codes.ResourceExhausted, busy), err}
	case errors.Is(err, sema.ErrBusy):
		return fails(codes.ResourceExhausted, err)
	case errors.As(err, &argument) && argument.What != "limit", errors.As(err, &heavy):
		return fails(codes.InvalidArgument, err)
	case errors.As(err, &limit):
		return fails(codes.FailedPrecondition, err)
	}
	return fails(codes.Internal, err)
}

// Observer is told what nobody else is told. Fields may be nil. The functions are
// called from the goroutine at hand, and must not block.
type Observer struct {
	// EngineFailed: the engine did not answer for a call. Outage decided what became
	// of it.
	EngineFailed func(EngineFailed)

	// Outage: with admit.Open or admit.Local, an outage of the engine began, or is over.
	// Default: slog is told, with a WARN and an INFO.
	Outage func(admit.Outage)

	// Abandoned: the garbage collector found a client's stream that had not ended. It
	// has been cancelled, and its permit given back.
	Abandoned func(Abandoned)
}

// EngineFailed is what Observer.EngineFailed is told.
type EngineFailed struct {
	Method string     // the full name
	Key    engine.Key // as Limit.Key has it; without that the name of Limit.Semaphore, or the method
	Err    error      // what the engine said, to this call or to the last that asked it

	Admitted bool // the call goes on without a permit
}

// Abandoned is what Observer.Abandoned is told.
type Abandoned struct {
	Method string     // the full name
	Key    engine.Key // as for EngineFailed
}
