package otelsema

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"sema"
	"sema/internal/class"
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
	AttributeKey    = "sema.key"
	AttributeResult = "sema.result" // as metrics.ResultOf has it
	AttributePermit = "sema.permit.id"
	AttributeToken  = "sema.permit.token"
)

// Permit is a permit whose hold is a span. The span ends with Release; that of a
// permit that nobody releases is never sent.
type Permit struct {
	*sema.Permit
	hold *hold
}

// Acquire is AcquireN of the Semaphore, with a span for the wait, and one for
// the hold. Both are children of ctx's span.
func (t *Telemetry) Acquire(ctx context.Context, s *sema.Semaphore, n int) (*Permit, error) {
	return t.acquire(ctx, s.Name(), "", n, s.AcquireN)
}

// TryAcquire is TryAcquireN of the Semaphore, with the same spans.
func (t *Telemetry) TryAcquire(ctx context.Context, s *sema.Semaphore, n int) (*Permit, error) {
	return t.acquire(ctx, s.Name(), "", n, s.TryAcquireN)
}

// AcquireFor is AcquireN of one of the keys that share the Semaphore, with the same
// spans. Both have the key as AttributeKey.
func (t *Telemetry) AcquireFor(ctx context.Context, s *sema.Semaphore, key string, n int) (*Permit, error) {
	return t.acquire(ctx, s.Name(), key, n, s.For(key).AcquireN)
}

// TryAcquireFor is TryAcquireN of a key, with the same spans as AcquireFor.
func (t *Telemetry) TryAcquireFor(ctx context.Context, s *sema.Semaphore, key string, n int) (*Permit, error) {
	return t.acquire(ctx, s.Name(), key, n, s.For(key).TryAcquireN)
}

// AcquireKey is AcquireN of the Keys, with the same spans. Their name is that of the
// key's semaphore.
func (t *Telemetry) AcquireKey(ctx context.Context, k *sema.Keys, key string, n int) (*Permit, error) {
	return t.acquireKey(ctx, k, key, n, k.AcquireN)
}

// TryAcquireKey is TryAcquireN of the Keys, with the same spans as AcquireKey.
func (t *Telemetry) TryAcquireKey(ctx context.Context, k *sema.Keys, key string, n int) (*Permit, error) {
	return t.acquireKey(ctx, k, key, n, k.TryAcquireN)
}

func (t *Telemetry) acquireKey(ctx context.Context, k *sema.Keys, key string, n int, take func(context.Context, string, int) (*sema.Permit, error)) (*Permit, error) {
	name, err := k.Name(key)
	if err != nil {
		return nil, err
	}
	return t.acquire(ctx, name, "", n, func(ctx context.Context, n int) (*sema.Permit, error) { return take(ctx, key, n) })
}

// acquire takes a permit, with its spans.
func (t *Telemetry) acquire(ctx context.Context, name, key string, n int, take func(context.Context, int) (*sema.Permit, error)) (*Permit, error) {
	about := []attribute.KeyValue{attribute.String(metrics.LabelName, name), attribute.Int(AttributeWeight, n)}
	if key != "" {
		about = append(about, attribute.String(AttributeKey, key))
	}
	common := trace.WithAttributes(about...)
	waiting, wait := t.tracer.Start(ctx, SpanAcquire, common)
	p, err := take(waiting, n)
	wait.SetAttributes(attribute.String(AttributeResult, metrics.ResultOf(err)))
	if err != nil {
		wait.SetStatus(codes.Error, err.Error())
	}
	wait.End()
	if err != nil {
		return nil, err
	}
	_, span := t.tracer.Start(ctx, SpanHold, common, trace.WithAttributes(
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
func (t *Telemetry) Do(ctx context.Context, s *sema.Semaphore, f func(context.Context) error) error {
	p, err := t.Acquire(ctx, s, 1)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }() // loss is reported below, the rest ends with the lease
	err = f(p.Context(ctx))
	return class.Join(p.Err(), err)
}
