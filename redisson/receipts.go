package redisson

import "sync"

// ticket names one request on the server: its lane, and its number there.
// The zero ticket is none.
type ticket struct {
	lane   int
	number int64
}

// lanes hands out tickets so that the server can tell a copy of a request from
// a new one while it keeps one receipt per lane only: a lane is used by one
// request at a time, and a higher number on it says that nobody waits for the
// lower ones any more. This is the session slot table of NFSv4.1 (RFC 8881,
// section 2.10.6). There are as many lanes as there were requests at once.
type lanes struct {
	mu      sync.Mutex
	free    []int
	numbers []int64
}

func (l *lanes) take() ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 {
		l.numbers = append(l.numbers, 0)
		l.free = append(l.free, len(l.numbers)-1)
	}
	lane := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.numbers[lane]++
	return ticket{lane, l.numbers[lane]}
}

func (l *lanes) put(t ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, t.lane)
}
