//go:build !race

package redisengine_test

const manyWaiters = 10_000
