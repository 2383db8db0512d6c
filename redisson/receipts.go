package redisson

import "sync"

// requestID names one request on the server: its lane, and its number there.
// The zero requestID is none.
type requestID struct {
	lane   int
	number int64
}

// lanes hands out request ids, by which the server tells a copy of a request
// from a new one. The server keeps one receipt for each lane. That is enough,
// because only one request at a time uses a lane: when the server sees a higher
// number on it, nobody waits for the lower ones any more. This is the session
// slot table of NFSv4.1 (RFC 8881, section 2.10.6). There are as many lanes as
// there were requests at the same time.
type lanes struct {
	mu      sync.Mutex
	free    []int
	numbers []int64
}

func (l *lanes) take() requestID {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 {
		l.numbers = append(l.numbers, 0)
		l.free = append(l.free, len(l.numbers)-1)
	}
	lane := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.numbers[lane]++
	return requestID{lane, l.numbers[lane]}
}

func (l *lanes) put(id requestID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, id.lane)
}
