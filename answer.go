package sema

import (
	"context"
	"time"
)

type answerKey struct{}

// AnswerWithin makes a context for acquisitions that shall not wait long for an engine
// that is away. If the engine has said nothing for d, neither that the permit is
// granted nor that its caller is queued, they fail with ErrEngine, as they do
// after three seconds otherwise; nothing is held then. A caller that was told that it
// waits goes on waiting, until ctx ends. A d of 0 or less, of three seconds or more, or
// longer than the one that ctx has already, changes nothing.
func AnswerWithin(ctx context.Context, d time.Duration) context.Context {
	if old := answerWithin(ctx); d <= 0 || old > 0 && old <= d {
		return ctx
	}
	return context.WithValue(ctx, answerKey{}, d)
}

// answerWithin is what AnswerWithin set; 0: nothing.
func answerWithin(ctx context.Context) time.Duration {
	d, _ := ctx.Value(answerKey{}).(time.Duration)
	return d
}
