package engine

import (
	"context"
	"time"
)

// Timed is a context that ends at its deadline, and before it only when its caller closes the
// session. An engine whose connections heed deadlines need not watch it.
type Timed struct {
	context.Context
	cancel context.CancelFunc // never called
}

// Until is a context that ends at t.
func Until(t time.Time) *Timed {
	ctx, cancel := context.WithDeadline(context.Background(), t)
	return &Timed{ctx, cancel}
}
