//go:build race

package redisengine_test

// manyWaiters is smaller under the race detector. The detector keeps up to 256 kB for
// each goroutine of the largest number that lived at once. With 2000 waiters the
// tests needed 480 MB.
const manyWaiters = 500
