package main

import (
	"errors"
	"math"
	"net/http"
	"strconv"

	"sema/semahttp"
)

// handler serves requests with the same limits: the permit outside, the rate within.
func (l limits) handler(key func(*http.Request) string, next http.Handler) http.Handler {
	rated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var above *later
		switch err := l.token(r.Context(), key(r)); {
		case errors.As(err, &above):
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(above.after.Seconds()))))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		case err != nil: // Redis is away, or the permit is lost
			w.Header().Set("Retry-After", "1")
			http.Error(w, "cannot serve now", http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(w, r)
		}
	})
	return &semahttp.Handler{Next: rated, Limit: func(*http.Request) semahttp.Limiter { return semahttp.Of(l.atOnce) }}
}
