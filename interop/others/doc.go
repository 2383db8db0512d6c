// Package others holds what docs/coming-from.md says of other locks and
// semaphores against those themselves. It is a module of its own: nobody who
// uses sema needs them. The tests of npm's redis-semaphore are behind the build
// tag interop; run.sh fetches it and runs them.
package others
