package sematest

import (
	"reflect"
	"runtime"
	"slices"
	"strings"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

// maxStacks bounds, in bytes, what is read of the stacks of all goroutines.
const maxStacks = 16 << 20

// root begins the names of all functions of package sema, as stacks have them: a dot in
// the path's last element is written otherwise there.
var root = strings.TrimSuffix(runtime.FuncForPC(reflect.ValueOf(sema.New).Pointer()).Name(), "New")

// acquiring is in the stack of each goroutine that acquires.
var acquiring = root + "(*Semaphore).acquire("

// note returns the permits that a call asks for first, and whether one caller
// asks alone; and drops what is known of those that it releases.
func (e *Engine) note(s *session, c protocol.Call) (asked []engine.ID, alone bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range c.Requests {
		if r.Kind == protocol.Release {
			delete(e.places, r.ID)
		}
		if _, lost := e.lost[r.ID]; lost && r.Kind != protocol.Ask {
			e.lost[r.ID] = true
		}
		if _, known := e.places[r.ID]; r.Kind == protocol.Ask && !known {
			asked = append(asked, r.ID)
			e.places[r.ID], s.asking[r.ID] = nil, true
			if r.Detached {
				e.detached[r.ID] = true
			}
		}
	}
	return asked, len(asked) == 1 && len(s.asking) == 1
}

// place keeps where permits are acquired. It is called when the call has been
// carried out, which it must not delay, and before its callers know.
func (e *Engine) place(s *session, asked []engine.ID, alone bool) {
	if len(asked) == 0 {
		return
	}
	// A caller who is alone carries the call in its own goroutine. Of several that
	// wait, any may be the one that asks for another.
	found := acquirers(stacks(false))
	e.mu.Lock()
	defer e.mu.Unlock()
	if !alone || len(found) == 0 {
		found = s.candidates(len(asked))
	}
	for _, place := range found {
		if !slices.Contains(s.seen, place) {
			s.seen = append(s.seen, place)
		}
	}
	for _, id := range asked {
		if _, known := e.places[id]; known {
			e.places[id] = found
		}
	}
}

// candidates lists the places where goroutines acquire now; or, where there are
// very many goroutines, those where some did before: to look at all of them costs
// too much for each ask. The lock is held.
func (s *session) candidates(asked int) []string {
	all := runtime.NumGoroutine()
	s.looks += asked * looksPerAsk
	if s.looks < all && len(s.seen) > 0 {
		return slices.Clip(s.seen)
	}
	s.looks = max(0, s.looks-all)
	return acquirers(stacks(true))
}

// looksPerAsk is how many goroutines are looked at for each ask, on average.
const looksPerAsk = 100

// stacks is what the runtime shows of this goroutine, or of all.
func stacks(all bool) string {
	for size := 64 << 10; ; size *= 4 {
		b := make([]byte, size)
		if n := runtime.Stack(b, all); n < size || size >= maxStacks {
			return string(b[:n])
		}
	}
}

// acquirers lists the places where goroutines acquire, each once.
func acquirers(text string) []string {
	var found []string
	for stack := range strings.SplitSeq(text, "\n\n") {
		if !strings.Contains(stack, "\n"+acquiring) {
			continue
		}
		if place := caller(stack); !slices.Contains(found, place) {
			found = append(found, place)
		}
	}
	return found
}

// caller is a goroutine's stack above package sema: a line for each function and
// one for its place.
func caller(stack string) string {
	lines := strings.Split(strings.TrimSuffix(stack, "\n"), "\n")
	above := 0
	for i, line := range lines {
		if strings.HasPrefix(line, root) {
			above = i + 2
		}
	}
	if above >= len(lines) {
		above = 1
	}
	var b strings.Builder
	for _, line := range lines[above:] {
		b.WriteString("\t" + plain(line) + "\n")
	}
	return b.String()
}

// plain is a line of a stack without what differs between two calls from the
// same place: arguments, offsets, goroutines.
func plain(line string) string {
	cut := " +0x"
	switch {
	case strings.HasPrefix(line, "created by "):
		cut = " in goroutine "
	case !strings.HasPrefix(line, "\t"):
		cut = "("
	}
	if i := strings.LastIndex(line, cut); i > 0 {
		return line[:i]
	}
	return line
}
