package otelsema

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"sema"
	"sema/each"
	"sema/metrics"
)

// The names of the spans.
const (
	SpanAcquire = "sema.acquire" // from the call to the permit, or to the failure
	SpanHold    = "sema.hold"    // from the permit to its release
)

// The attributes of spans beside "sema.name". A failed acquisition has no weight. The last two
// are of SpanHold, by which operators find the permit.
const (
	AttributeWeight = "sema.permit.weight"
	AttributeKey    = "sema.key"
	AttributeResult = "sema.result" // as the label result of sema_acquires_total, see docs/metrics.md
	AttributePermit = "sema.permit.id"
	AttributeToken  = "sema.permit.token"
)

// Permit is a permit whose hold is a span. The span ends with Release; that of a
// permit that nobody releases is never sent.
type Permit struct {
	*sema.Permit
	hold *hold
}

// Acquire is that of the Semaphore, with a span for the wait, and one for the hold. Both are
// children of ctx's span, and have the key of the acquisition as AttributeKey: "acme", or "acme/alice", see engine.Key.
func (t *Telemetry) Acquire(ctx context.Context, s *sema.Semaphore, options ...sema.AcquireOption) (*Permit, error) {
	return t.acquire(ctx, s.Name(), s.Acquire, options)
}

// AcquireEach is Acquire of the Group, with the same spans. The span of a failed acquisition has no
// "sema.name"; its status names the semaphore.
func (t *Telemetry) AcquireEach(ctx context.Context, g *each.Group, name string, options ...sema.AcquireOption) (*Permit, error) {
	return t.acquire(ctx, "", func(ctx context.Context, options ...sema.AcquireOption) (*sema.Permit, error) {
		return g.Acquire(ctx, name, options...)
	}, options)
}

// acquire takes a permit, with its spans. A name "" is known by the permit only.
func (t *Telemetry) acquire(ctx context.Context, name string, take func(context.Context, ...sema.AcquireOption) (*sema.Permit, error), options []sema.AcquireOption) (*Permit, error) {
	var about []attribute.KeyValue
	if name != "" {
		about = append(about, attribute.String(metrics.LabelName, name))
	}
	if key := sema.ReadOptions(options...).Key; key != "" {
		about = append(about, attribute.String(AttributeKey, key.String()))
	}
	waiting, wait := t.tracer.Start(ctx, SpanAcquire, trace.WithAttributes(about...))
	p, err := take(waiting, options...)
	wait.SetAttributes(attribute.String(AttributeResult, metrics.ResultOf(err)))
	if err != nil {
		wait.SetStatus(codes.Error, err.Error())
		wait.End()
		return nil, err
	}
	if name == "" {
		about = append(about, attribute.String(metrics.LabelName, p.Name()))
	}
	about = append(about, attribute.Int(AttributeWeight, p.Weight()))
	wait.SetAttributes(about...)
	wait.End()
	_, span := t.tracer.Start(ctx, SpanHold, trace.WithAttributes(about...), trace.WithAttributes(
		attribute.String(AttributePermit, p.ID()), attribute.Int64(AttributeToken, p.Token())))
	return &Permit{p, &hold{span: span}}, nil
}

// Context is that of the permit, and carries the span of the hold, so that the
// work's spans are its children.
func (p *Permit) Context(parent context.Context) context.Context {
	return trace.ContextWithSpan(p.Permit.Context(parent), p.hold.span)
}

// Release is that of the permit. It ends the span, with the error as its status
// if there is one.
func (p *Permit) Release() error { return p.hold.over(p.Permit.Release()) }

// hold is the span of a hold.
type hold struct {
	span trace.Span
	end  sync.Once
}

// over ends the span of a permit whose release returned err, which it returns.
func (h *hold) over(err error) error {
	h.end.Do(func() {
		if err != nil {
			h.span.SetStatus(codes.Error, err.Error())
		}
		h.span.End()
	})
	return err
}

// Do is Do of the Semaphore, with the same spans as Acquire. An error of f's is
// not one of the hold.
func (t *Telemetry) Do(ctx context.Context, s *sema.Semaphore, f func(context.Context) error, options ...sema.AcquireOption) error {
	p, err := t.Acquire(ctx, s, options...)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }() // loss is reported below, the rest ends with the lease
	err = f(p.Context(ctx))
	switch lost := p.Err(); {
	case lost == nil || errors.Is(err, lost):
		return err
	case err == nil:
		return lost
	default:
		return fmt.Errorf("%w; %w", lost, err)
	}
}
