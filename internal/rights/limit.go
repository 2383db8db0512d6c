package rights

import (
	"maps"
	"sync"
	"time"
)

// RateLimit lets something happen Burst times at once for each key, and then once for
// each time that Every has passed. The zero value with both set is ready; it is safe
// for concurrent use. It remembers some thousand keys, and forgets all of them rather
// than more.
type RateLimit struct {
	Burst int
	Every time.Duration

	mu   sync.Mutex
	full map[string]time.Time // when the key will have its burst again
}

const maxKeys = 10_000

// Wait is how long a key has to wait until it may again; 0: it may now.
func (l *RateLimit) Wait(key string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.full[key]
	if !ok {
		return 0
	}
	return max(0, time.Until(at)-time.Duration(l.Burst-1)*l.Every)
}

// Take notes that it happened.
func (l *RateLimit) Take(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if len(l.full) >= maxKeys {
		maps.DeleteFunc(l.full, func(_ string, at time.Time) bool { return at.Before(now) })
		if len(l.full) >= maxKeys {
			clear(l.full)
		}
	}
	if l.full == nil {
		l.full = map[string]time.Time{}
	}
	at := l.full[key]
	if at.Before(now) {
		at = now
	}
	l.full[key] = at.Add(l.Every)
}
