package admit

import "sync"

const (
	// wide is how many jobs of a key may wait before anything is known of it: as
	// many as any process has workers.
	wide = 1024

	// many is how many keys are remembered though none of their jobs wait.
	many = 1000
)

// rooms bounds how many jobs wait in this process, each in a worker that could
// work on a job of another key. Where permits come fast, or no job could run, many jobs may wait, and
// get theirs in time. Where a job has waited in vain only one does, and keeps a
// place in the semaphore's queue for all of its key.
type rooms struct {
	mu    sync.Mutex
	byKey map[string]*room
}

type room struct {
	waiting int
	size    int
}

func newRooms() rooms { return rooms{byKey: map[string]*room{}} }

// enter reports whether a job may wait, and whether none of its key waits before it. If it may,
// leave has to follow.
func (r *rooms) enter(key string) (waits, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byKey[key]
	if m == nil {
		m = &room{size: wide}
		r.byKey[key] = m
	}
	if m.waiting >= m.size {
		return false, false
	}
	m.waiting++
	return true, m.waiting == 1
}

// leave notes that a job that entered waits no more, and whether it was granted
// its permit.
func (r *rooms) leave(key string, granted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byKey[key]
	m.waiting--
	if granted {
		m.size = min(wide, 2*m.size)
	} else {
		m.size = 1
	}
	if m.waiting == 0 && (m.size == wide || len(r.byKey) > many) {
		delete(r.byKey, key)
	}
}

// full reports whether enter would be refused.
func (r *rooms) full(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byKey[key]
	return m != nil && m.waiting >= m.size
}
