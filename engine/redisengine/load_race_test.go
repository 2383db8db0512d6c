//go:build race

package redisengine_test

// manyWaiters is smaller under the race detector, which is ten times as slow.
const manyWaiters = 2000
