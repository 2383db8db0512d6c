package redistest

// Probes is a function of go-redis' that may outlive its client by a second, for goleak:
// while a server is away it sleeps that long before it looks whether the client is closed.
const Probes = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"
