//go:build race

package redisengine_test

// manyWaiters is smaller under the race detector. It keeps up to 256 kB for each
// goroutine that lived at one time, and other tests' goroutines fill that later: with
// 2000 the tests needed 480 MB in the end.
const manyWaiters = 500
