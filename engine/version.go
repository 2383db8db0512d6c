package engine

// Version is this release of sema, or the next one in development. Sessions report it, so
// that operators see which releases share a semaphore. No decision depends on it.
const Version = "0.1.0"
