package history

import (
	"math"
	"slices"
	"time"
	"unsafe"

	"sema/access"
	"sema/engine"
	"sema/internal/looks"
	"sema/watch"
)

// row has the figures of a semaphore in one or more equal steps.
type row struct {
	At      uint8              `json:"at"` // the first step, counted from the beginning of the block
	N       uint8              `json:"n"`  // the number of steps
	Granted uint16             `json:"granted,omitempty"`
	Lost    uint16             `json:"lost,omitempty"`
	Left    uint16             `json:"left,omitempty"`
	Used    int32              `json:"used"`
	Limit   int32              `json:"limit"`
	Waiting int32              `json:"waiting,omitempty"`
	Oldest  uint32             `json:"oldest_ms,omitempty"`
	Bad     uint16             `json:"bad,omitempty"` // 1 + the thousandths of the time held that were bad; 0: no controller sets the limit
	Waits   [waitBounds]uint16 `json:"waits,omitzero"`
}

// alike reports whether b has the same figures as a, without events in a.
func (a *row) alike(b *row) bool {
	c := *b
	c.At, c.N = a.At, a.N
	return *a == c && a.Granted == 0 && a.Lost == 0 && a.Left == 0
}

// block has sixty steps of a semaphore.
type block struct {
	from    time.Time
	rows    []row
	visits  []Visit         // visits that ended in these steps
	changes []access.Record // changes from looks have neither Who nor Result, but Limit
	stored  bool            // the Store has the block unchanged
}

func (b *block) end(step time.Duration) time.Time { return b.from.Add(blockSteps * step) }

// clone returns a copy that shares no changing data.
func (b *block) clone() block {
	c := *b
	c.rows, c.visits, c.changes = slices.Clone(b.rows), slices.Clone(b.visits), slices.Clone(b.changes)
	return c
}

// size is an approximate amount of memory in bytes.
type size struct{ rows, visits int }

func (a size) plus(b size) size  { return size{a.rows + b.rows, a.visits + b.visits} }
func (a size) minus(b size) size { return size{a.rows - b.rows, a.visits - b.visits} }

func (b *block) size() size {
	n := size{rows: cap(b.rows) * int(unsafe.Sizeof(row{})), visits: cap(b.visits)*int(unsafe.Sizeof(Visit{})) + cap(b.changes)*int(unsafe.Sizeof(access.Record{}))}
	n.rows += int(unsafe.Sizeof(block{}))
	for i := range b.visits {
		n.visits += b.visits[i].texts()
	}
	return n
}

// Visit is one caller's use of a semaphore: its wait, its permit, or both. Times are exact to
// within the time between two looks.
type Visit struct {
	ID      string        `json:"id"`
	Client  engine.Client `json:"client"`
	Weight  int           `json:"weight"`
	Key     string        `json:"key,omitempty"` // the key of a semaphore with keys, as its String prints it
	Token   int64         `json:"token,omitempty"`
	Came    time.Time     `json:"came,omitzero"`    // the beginning of the wait; zero: no look saw it wait
	Granted time.Time     `json:"granted,omitzero"` // zero: not granted
	Gone    time.Time     `json:"gone,omitzero"`    // the end; zero: the visit is current
	End     End           `json:"end,omitempty"`

	lease time.Duration // the longest rest of the lease in any look
	left  time.Duration // the rest of the lease in the last look
}

// texts is the number of bytes in a visit's strings.
func (v *Visit) texts() int {
	return len(v.ID) + len(v.Client.Host) + len(v.Client.Label) + len(v.Client.Version) + len(v.Client.Caller) + len(v.Key)
}

// From is the beginning of the visit: Came, or else Granted.
func (v *Visit) From() time.Time {
	if v.Came.IsZero() {
		return v.Granted
	}
	return v.Came
}

// End is how a visit ended.
type End string

// The ends of visits.
const (
	Here     End = ""         // the visit is current
	Released End = "released" // its holder or an operator released the permit before the lease could have ended
	Ended    End = "ended"    // the lease may have ended: the permit was lost, or released late
	Left     End = "left"     // it left the queue: it gave up, or it held a permit only between two looks
	Unseen   End = "unseen"   // it ended at a time without looks
)

// maxHere is the most current visits of a semaphore that are followed. hereBytes is the
// approximate size of one in bytes.
const (
	maxHere   = 1000
	hereBytes = 400
)

// maxChanges is the most changes in a block.
const maxChanges = 200

// semaphore is the data of one semaphore. It is guarded by the History's lock.
type semaphore struct {
	blocks []*block // the oldest first
	here   map[string]*Visit
	room   *int // how many more current visits may be followed, in all semaphores
	looked time.Time
	dying  int // holders that have not renewed for two thirds of their lease
	size   size

	usual   Waits // of all blocks, counted at usualAt
	usualAt time.Time
}

// block returns the block of t, or makes it.
func (s *semaphore) block(step time.Duration, t time.Time) *block {
	from := t.Truncate(blockSteps * step)
	if n := len(s.blocks); n > 0 && !s.blocks[n-1].from.Before(from) {
		return s.blocks[n-1]
	}
	b := &block{from: from}
	s.blocks = append(s.blocks, b)
	s.size = s.size.plus(b.size())
	return b
}

// edit changes a block, and updates the size.
func (s *semaphore) edit(b *block, f func()) {
	s.size = s.size.minus(b.size())
	f()
	b.stored = false
	s.size = s.size.plus(b.size())
}

func (s *semaphore) dropBlock() bool {
	if len(s.blocks) == 0 {
		return false
	}
	s.size = s.size.minus(s.blocks[0].size())
	s.blocks = append(s.blocks[:0:0], s.blocks[1:]...)
	return true
}

// dropVisits drops the older half of the visits in the oldest block that has visits or
// changes. If it has no visits, dropVisits drops its changes.
func (s *semaphore) dropVisits() bool {
	for _, b := range s.blocks {
		if cap(b.visits)+cap(b.changes) == 0 {
			continue
		}
		s.size = s.size.minus(b.size())
		if n := len(b.visits); n > 0 {
			b.visits = append(b.visits[:0:0], b.visits[(n+1)/2:]...)
		} else {
			b.visits, b.changes = nil, nil
		}
		s.size = s.size.plus(b.size())
		return true
	}
	return false
}

func (s *semaphore) change(step time.Duration, c access.Record) {
	b := s.block(step, c.Time)
	s.edit(b, func() {
		if len(b.changes) < maxChanges {
			b.changes = append(b.changes, c)
		}
	})
}

// add records a look.
func (s *semaphore) add(step time.Duration, l looks.Look) {
	fresh := row{Used: clip(l.Used), Limit: clip(l.Limit), Waiting: clip(l.Waiting), Oldest: uint32(min(l.Oldest.Milliseconds(), math.MaxUint32))}
	if l.Auto != nil {
		fresh.Bad = uint16(min(max(l.Auto.Bad, 0), 1000) + 1)
	}
	for _, e := range l.Events {
		s.recordEvent(step, l, e, &fresh)
	}
	s.recordVisits(step, l)
	b := s.block(step, l.Looked)
	s.edit(b, func() { b.note(int(l.Looked.Sub(b.from)/step), fresh) })
	s.looked = l.Looked
}

func clip(n int) int32 { return int32(min(n, math.MaxInt32)) }

// recordEvent records an event.
func (s *semaphore) recordEvent(step time.Duration, l looks.Look, e watch.Event, into *row) {
	switch e.Kind {
	case "granted":
		if l.Since > 0 || e.Held < 2*step { // not a permit that was old at the first look
			into.Granted = sum(into.Granted, 1)
			bound := boundOf(e.Waited)
			into.Waits[bound] = sum(into.Waits[bound], 1)
		}
	case "released":
		s.endVisit(step, e, Released)
	case "ended":
		into.Lost = sum(into.Lost, 1)
		s.endVisit(step, e, Ended)
	case "left":
		into.Left = sum(into.Left, 1)
		s.endVisit(step, e, Left)
	case "limit", "paused", "unpaused", "removed":
		s.change(step, access.Record{Time: e.Time, What: e.Kind, Limit: e.Limit})
	}
}

func (s *semaphore) endVisit(step time.Duration, e watch.Event, how End) {
	v := s.here[e.Permit]
	if v == nil { // it began and ended between two looks
		return
	}
	delete(s.here, e.Permit)
	*s.room++
	v.Gone, v.End = e.Time, how
	b := s.block(step, e.Time)
	s.edit(b, func() { b.visits = append(b.visits, *v) })
}

// recordVisits follows the current holders and waiters.
func (s *semaphore) recordVisits(step time.Duration, l looks.Look) {
	visit := func(id, key string, c engine.Client, weight int) *Visit {
		v := s.here[id]
		if v == nil && len(s.here) < maxHere && *s.room > 0 {
			*s.room--
			v = &Visit{ID: id, Client: c, Weight: weight, Key: key}
			s.here[id] = v
		}
		return v
	}
	var now map[string]bool
	if l.Since == 0 { // there was no look before, so there are no events for ended visits
		now = make(map[string]bool, len(l.State.Holders)+len(l.State.Waiters))
	}
	s.dying = 0
	for i := range l.State.Holders {
		holder := &l.State.Holders[i]
		if now != nil {
			now[holder.ID] = true
		}
		v := visit(holder.ID, holder.Key.String(), holder.Client, holder.Weight)
		if v == nil {
			continue
		}
		if v.Granted.IsZero() {
			v.Granted = l.Looked.Add(-holder.Age)
			if v.Granted.Before(v.Came) {
				v.Granted = v.Came
			}
		}
		v.Token, v.left, v.lease = holder.Token, holder.Left, max(v.lease, holder.Left)
		if v.Dying() {
			s.dying++
		}
	}
	for i := range l.State.Waiters {
		waiter := &l.State.Waiters[i]
		if now != nil {
			now[waiter.ID] = true
		}
		if v := visit(waiter.ID, waiter.Key.String(), waiter.Client, waiter.Weight); v != nil && v.Came.IsZero() {
			v.Came = l.Looked.Add(-waiter.Waiting)
		}
	}
	if now == nil {
		return
	}
	for id, v := range s.here {
		if !now[id] {
			s.endVisit(step, watch.Event{Permit: id, Time: later(s.looked, v.From())}, Unseen)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Dying reports whether a holder had not renewed for two thirds of its lease at the last
// look. A living holder renews twice in that time.
func (v *Visit) Dying() bool { return !v.Granted.IsZero() && v.left < v.lease/3 }

// note adds the figures of a look to the block.
func (b *block) note(at int, fresh row) {
	at = min(max(at, 0), blockSteps-1)
	fresh.At, fresh.N = uint8(at), 1
	if len(b.rows) == 0 {
		b.rows = append(b.rows, fresh)
		return
	}
	last := &b.rows[len(b.rows)-1]
	switch end := int(last.At) + int(last.N); {
	case at < end: // another look in the same step
		if last.N > 1 {
			if last.alike(&fresh) {
				return
			}
			one := *last
			one.At, one.N = uint8(end-1), 1
			last.N--
			b.rows = append(b.rows, one)
			last = &b.rows[len(b.rows)-1]
		}
		last.merge(&fresh)
	case at == end && last.alike(&fresh):
		last.N++
	default:
		b.rows = append(b.rows, fresh)
	}
}

// merge adds a later look of the same step.
func (a *row) merge(b *row) {
	a.Used, a.Limit = b.Used, b.Limit
	a.Waiting, a.Oldest = max(a.Waiting, b.Waiting), max(a.Oldest, b.Oldest)
	a.Granted, a.Lost, a.Left = sum(a.Granted, b.Granted), sum(a.Lost, b.Lost), sum(a.Left, b.Left)
	for i := range a.Waits {
		a.Waits[i] = sum(a.Waits[i], b.Waits[i])
	}
}

func sum(a, b uint16) uint16 { return a + min(b, math.MaxUint16-a) }
