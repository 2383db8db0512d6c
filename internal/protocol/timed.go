package protocol

import "context"

// Timed is a context that ends at its deadline. It ends earlier only if its caller closes
// the session. An engine that sets deadlines on its connections need not watch it.
type Timed struct{ context.Context }
