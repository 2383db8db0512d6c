//go:build !race

package redisengine

const agreeChecks = 500
