package sema

import (
	"cmp"
	"context"
	"time"

	"sema/internal/client"
	"sema/internal/hooks"
	"sema/internal/protocol"
)

func init() {
	hooks.Decide = func(ctx context.Context, s any) { s.(*Semaphore).adapt.decide(ctx) }
	hooks.Unused = func(s any) (time.Duration, bool) { return s.(*Semaphore).unused() }
	hooks.Patience = func(options any) time.Duration {
		w, _ := fold(true, options.([]AcquireOption)) // the acquisition refuses what is wrong
		return min(cmp.Or(w.answer, client.Patience), cmp.Or(w.most, client.Patience), client.Patience)
	}
	hooks.Rest = func(options any, waited time.Duration) any {
		rest := options.([]AcquireOption)
		for i := range rest {
			if o := &rest[i]; (o.kind == waitOption || o.kind == answerOption) && o.n > 0 {
				o.n = max(1, o.n-int64(waited))
			}
		}
		return rest
	}
	hooks.HeadStart = func(options any) time.Duration {
		w, _ := fold(true, options.([]AcquireOption))
		return w.headStart
	}
	hooks.Key = func(options any) string {
		w, _ := fold(true, options.([]AcquireOption))
		key, _ := protocol.SplitCounted(w.key)
		return key
	}
}
