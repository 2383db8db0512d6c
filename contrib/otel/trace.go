package otelsema

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"sema"
	"sema/metrics"
)

// The names of the spans.
const (
	SpanAcquire = "sema.acquire" // from the call to the permit, or to the failure
	SpanHold    = "sema.hold"    // from the permit to its release
)

// The attributes of spans beside metrics.LabelName. The last two are of
// SpanHold, by which operators find the permit.
const (
	AttributeWeight = "sema.permit.weight"
	AttributeResult = "sema.result" // as metrics.ResultOf has it
	AttributePermit = "sema.permit.id"
	AttributeToken  = "sema.permit.token"
)

// Permit is a permit whose hold is a span. The span ends with Release; that of a
// permit that nobody releases is never sent.
type Permit struct {
	*sema.Permit
	span trace.Span
	end  sync.Once
}

// Acquire is AcquireN of the Semaphore, with a span for the wait, and one for
// the hold. Both are children of ctx's span.
func (t *Telemetry) Acquire(ctx context.Context, s *sema.Semaphore, n int) (*Permit, error) {
	return t.acquire(ctx, s, n, s.AcquireN)
}

// TryAcquire is TryAcquireN of the Semaphore, with the same spans.
func (t *Telemetry) TryAcquire(ctx context.Context, s *sema.Semaphore, n int) (*Permit, error) {
	return t.acquire(ctx, s, n, s.TryAcquireN)
}

func (t *Telemetry) acquire(ctx context.Context, s *sema.Semaphore, n int, acquire func(context.Context, int) (*sema.Permit, error)) (*Permit, error) {
	common := trace.WithAttributes(attribute.String(metrics.LabelName, s.Name()), attribute.Int(AttributeWeight, n))
	waiting, wait := t.tracer.Start(ctx, SpanAcquire, common)
	p, err := acquire(waiting, n)
	wait.SetAttributes(attribute.String(AttributeResult, metrics.ResultOf(err)))
	if err != nil {
		wait.SetStatus(codes.Error, err.Error())
	}
	wait.End()
	if err != nil {
		return nil, err
	}
	_, hold := t.tracer.Start(ctx, SpanHold, common, trace.WithAttributes(
		attribute.String(AttributePermit, p.ID()), attribute.Int64(AttributeToken, p.Token())))
	return &Permit{Permit: p, span: hold}, nil
}

// Context is that of the permit, and carries the span of the hold, so that the
// work's spans are its children.
func (p *Permit) Context(parent context.Context) context.Context {
	return trace.ContextWithSpan(p.Permit.Context(parent), p.span)
}

// Release is that of the permit. It ends the span, with the error as its status
// if there is one.
func (p *Permit) Release() error {
	err := p.Permit.Release()
	p.end.Do(func() {
		if err != nil {
			p.span.SetStatus(codes.Error, err.Error())
		}
		p.span.End()
	})
	return err
}

// Do is Do of the Semaphore, with the same spans as Acquire. An error of f's is
// not one of the hold.
func (t *Telemetry) Do(ctx context.Context, s *sema.Semaphore, f func(context.Context) error) error {
	p, err := t.Acquire(ctx, s, 1)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }() // loss is reported below, the rest ends with the lease
	err = f(p.Context(ctx))
	if lost := p.Err(); lost != nil {
		return errors.Join(lost, err)
	}
	return err
}
