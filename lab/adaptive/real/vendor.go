package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Seen is what was seen.
type Seen struct {
	Processes, Callers int
	Phases             []Phase
	Samples            []Sample
}

// Phase is how the last minute of one capacity went.
type Phase struct {
	Capacity        int
	Used            float64 // of the capacity
	Refused         float64 // of the time that calls took
	Calls, Refusals int
}

// Sample is how it stood at a moment, in seconds from the beginning.
type Sample struct {
	At       float64
	Limit    int
	Capacity int
	Busy     int
}

const (
	leastUsed   = 0.95
	mostRefused = 0.03
)

// judge says what is less than promised.
func (s *Seen) judge() error {
	var errs []error
	for _, p := range s.Phases {
		if p.Used < leastUsed || p.Refused > mostRefused {
			errs = append(errs, fmt.Errorf("capacity %d: %.3f of it was used, want at least %v; %.3f of the time held was refused, want at most %v", p.Capacity, p.Used, leastUsed, p.Refused, mostRefused))
		}
	}
	return errors.Join(errs...)
}

const (
	serves  = 200 * time.Millisecond
	refuses = 20 * time.Millisecond
)

// vendor is an HTTP server that refuses what is beyond its capacity.
type vendor struct {
	url    string
	server *http.Server

	mu       sync.Mutex
	capacity int
	tally
}

// tally is what it has done so far.
type tally struct {
	at              time.Time
	Busy            int
	calls, refusals int
	busy, refusing  time.Duration // so long callers were there in all
	refused         int           // now
}

func newVendor() (*vendor, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &vendor{url: "http://" + l.Addr().String()}
	v.at = time.Now()
	v.server = &http.Server{Handler: v}
	go func() { _ = v.server.Serve(l) }()
	return v, nil
}

func (v *vendor) close() { _ = v.server.Close() }

func (v *vendor) set(capacity int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.capacity = capacity
}

// pass counts the time since the last event. The lock is held.
func (t *tally) pass() {
	now := time.Now()
	d := now.Sub(t.at)
	t.busy += d * time.Duration(t.Busy)
	t.refusing += d * time.Duration(t.refused)
	t.at = now
}

func (v *vendor) now() tally {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pass()
	return v.tally
}

// since is what happened after an earlier moment.
func (t tally) since(before tally, capacity int) Phase {
	busy, refusing := (t.busy - before.busy).Seconds(), (t.refusing - before.refusing).Seconds()
	return Phase{
		Capacity: capacity, Calls: t.calls - before.calls, Refusals: t.refusals - before.refusals,
		Used: busy / t.at.Sub(before.at).Seconds() / float64(capacity), Refused: refusing / (busy + refusing),
	}
}

// ServeHTTP implements http.Handler.
func (v *vendor) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	v.mu.Lock()
	v.pass()
	v.calls++
	n, takes := &v.Busy, serves
	if v.Busy >= v.capacity {
		n, takes = &v.refused, refuses
		v.refusals++
	}
	*n++
	v.mu.Unlock()
	time.Sleep(takes)
	v.mu.Lock()
	v.pass()
	*n--
	v.mu.Unlock()
	if takes == refuses {
		w.WriteHeader(http.StatusTooManyRequests)
	}
}
