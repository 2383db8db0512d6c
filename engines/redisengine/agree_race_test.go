//go:build race

package redisengine

// agreeChecks is smaller under the race detector, which finds nothing here.
const agreeChecks = 75
