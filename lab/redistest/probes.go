package redistest

import "go.uber.org/goleak"

// Probes is what go-redis starts when a server is away, and what may outlive its client
// by a second: it sleeps that long before it looks whether the client is closed.
var Probes = goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
