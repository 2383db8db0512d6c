package protocol

import (
	"context"
	"time"
)

// Timed is a context that ends at its deadline. It ends earlier only if its caller closes
// the session. An engine that sets deadlines on its connections need not watch it.
type Timed struct {
	context.Context
	cancel context.CancelFunc // never called
}

// Until returns a context that ends at t.
func Until(t time.Time) *Timed {
	ctx, cancel := context.WithDeadline(context.Background(), t)
	return &Timed{ctx, cancel}
}
