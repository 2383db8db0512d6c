package engine

// Version is the release of sema that this is, or is on its way to. Sessions say it, so that
// operators see which releases share a semaphore; nothing is decided by it.
const Version = "0.1.0"
