package simulate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"sema/engine"
	"sema/internal/protocol"
)

// oracle says what a ledger must answer and grant. It knows the tickets, the permits, the rules and
// the history of seats. It works out everything else anew for each grant: what a key holds, whether
// it is full, who comes first. Each key has callers of its own in a line below it, also one without
// others below: that makes no difference.
//
// A ledger does not look at all keys when the caps of all keys fall. So the oracle knows the
// cap by which each key was last seen, too.
type oracle struct {
	limit   int
	caps    engine.Caps
	other   bool // the caps have changed
	rules   map[string]rule
	paused  bool
	waiting []*wish
	held    []*wish

	seen  map[string]int   // by which cap a key is full, or is not
	seats map[string]seat  // of the keys that wait
	time  map[string]int64 // of the keys above them, virtual
	seq   int64
}

// wish is a ticket, and then a permit.
type wish struct {
	id    engine.ID
	line  []string // its keys, from the line that it stands in to the semaphore
	place int64
	end   int64 // of the ticket, or of the lease
}

type rule struct{ cap, share int }

// seat is since when a key waits, or was last served: in virtual time, and as which.
type seat struct{ base, seq int64 }

// everything is the name of the semaphore among the names of keys.
const everything = "\x00"

func newOracle() *oracle {
	return &oracle{rules: map[string]rule{}, seen: map[string]int{}, seats: map[string]seat{}, time: map[string]int64{}}
}

// lineOf are the keys of a caller, from the line that it stands in to the semaphore.
func lineOf(key string) (line []string) {
	names := strings.Split(key, "\x01")
	for i := range names {
		line = append([]string{strings.Join(names[:i+1], "\x01")}, line...)
	}
	if key != "" {
		line = append([]string{key + "\x01"}, line...)
	}
	return append(line, everything)
}

// step carries out a request. It returns the answer, and the grants in their order.
func (o *oracle) step(now int64, r *protocol.Request) (is protocol.Status, grants []engine.ID) {
	for _, w := range slices.Clone(o.held) {
		if w.end <= now {
			o.giveBack(w)
		}
	}
	is = protocol.Done
	switch r.Kind {
	case protocol.Ask:
		is, grants = o.ask(now, r)
	case protocol.Release:
		if h := find(o.held, r.ID); h != nil {
			o.giveBack(h)
		} else if !o.drop(r.ID) {
			is = protocol.Gone
		}
	case protocol.SetKey:
		was := o.rules[r.Key]
		o.rules[r.Key] = rule{cmp.Or(r.Cap, was.cap), cmp.Or(r.Share, was.share)}
		o.look(lineOf(r.Key))
	case protocol.UnsetKey:
		delete(o.rules, r.Key)
		o.look(lineOf(r.Key))
	case protocol.SetLimit:
		o.limit = cmp.Or(r.Limit, o.limit)
		for i, c := range r.Caps {
			o.caps[i] = max(0, cmp.Or(c, o.caps[i]))
		}
		o.other = true
	case protocol.Pause, protocol.Unpause:
		o.paused = r.Kind == protocol.Pause
	}
	return is, append(grants, o.grant(now, 1<<62)...)
}

func (o *oracle) ask(now int64, r *protocol.Request) (is protocol.Status, grants []engine.ID) {
	if find(o.held, r.ID) != nil {
		return protocol.Granted, nil
	}
	place, upTo := now-r.Waited.Microseconds(), int64(1<<62)
	if r.Wait {
		upTo = place
	}
	w := o.wish(r, place)
	if o.tooHeavy(w) {
		o.drop(r.ID)
		return protocol.TooHeavy, nil
	}
	grants = o.grant(now, upTo)
	if h := find(o.held, r.ID); h != nil {
		h.end = now + r.Lease.Microseconds()
		return protocol.Granted, grants
	}
	w = o.wish(r, place) // it may have been silent, and be gone
	switch {
	case o.fits(w) && (r.Unfair || o.before(w, r, place)):
		o.drop(r.ID)
		w.end = now + r.Lease.Microseconds()
		o.held = append(o.held, w)
		o.look(w.line)
		return protocol.Granted, append(grants, r.ID)
	case !r.Wait:
		o.drop(r.ID)
		return protocol.Refused, grants
	}
	if find(o.waiting, r.ID) == nil {
		o.waiting = append(o.waiting, w)
	} else if r.Anew || place < w.place {
		w.place = place
	}
	w.end = now + r.Ticket.Microseconds()
	o.look(w.line)
	o.seat()
	return protocol.Queued, grants
}

// wish finds the ticket of an ask, or is a new one.
func (o *oracle) wish(r *protocol.Request, place int64) *wish {
	if w := find(o.waiting, r.ID); w != nil {
		return w
	}
	return &wish{id: r.ID, line: lineOf(r.Key), place: place}
}

// before reports whether an ask comes before all that wait: those of its line, and the keys in turn
// beside those of its path.
func (o *oracle) before(w *wish, r *protocol.Request, place int64) bool {
	fresh := find(o.waiting, r.ID) == nil // it has no ticket yet
	for _, other := range o.waiting {
		ahead := other != w && (fresh || compare(other, w) < 0)
		if ahead && other.line[0] == w.line[0] && !(r.Wait && place < other.place) {
			return false
		}
	}
	for i, name := range w.line[:len(w.line)-1] {
		for beside, first := range o.firsts(w.line[i+1]) {
			if beside != name && !o.full(beside, first) {
				return false
			}
		}
	}
	return true
}

// grant hands out free weight, to those who came no later than a time.
func (o *oracle) grant(now, upTo int64) (grants []engine.ID) {
	if o.other {
		o.lookAtFull()
		o.other = false
	}
	for !o.paused {
		w := o.first(everything)
		if w == nil || w.place > upTo {
			return grants
		}
		if i := slices.IndexFunc(w.line, func(key string) bool { return o.lacks(key, w, o.cap(key)) }); i >= 0 && w.line[i] != everything {
			o.look(w.line[i:]) // its cap is smaller than it was
			continue
		}
		switch {
		case w.end <= now || o.tooHeavy(w):
			o.drop(w.id)
		case !o.fits(w):
			return grants
		default:
			o.serve(w)
			grants = append(grants, w.id)
		}
	}
	return grants
}

// look sees the caps of some keys.
func (o *oracle) look(line []string) {
	for _, name := range line {
		o.seen[name] = o.cap(name)
	}
}

// lookAtFull sees the caps of the full keys, and of those above them.
func (o *oracle) lookAtFull() {
	var full [][]string
	for _, w := range o.waiting {
		for i, name := range w.line[:len(w.line)-1] {
			if first := o.first(name); first != nil && o.full(name, first) {
				full = append(full, w.line[i:])
			}
		}
	}
	for _, line := range full {
		o.look(line)
	}
}

// serve gives a permit to the first of all, and new seats to the keys of its path that wait on.
func (o *oracle) serve(w *wish) {
	o.waiting, o.held = without(o.waiting, w.id), append(o.held, w)
	for i, name := range w.line[:len(w.line)-1] {
		up := w.line[i+1]
		o.time[up] = max(o.time[up], o.seats[name].base+o.cost(name, w))
		o.seq++
		o.seats[name] = seat{o.time[up], o.seq}
	}
	o.look(w.line)
	o.seat()
}

// drop ends a ticket, and reports whether there was one.
func (o *oracle) drop(id engine.ID) bool {
	w := find(o.waiting, id)
	if w == nil {
		return false
	}
	o.waiting = without(o.waiting, id)
	o.look(w.line)
	o.seat()
	return true
}

// giveBack ends a permit.
func (o *oracle) giveBack(w *wish) {
	o.held = without(o.held, w.id)
	o.look(w.line)
}

// seat gives seats to the keys that wait, from below to above, and takes those of others.
func (o *oracle) seat() {
	waits := map[string]bool{}
	for _, w := range o.waiting {
		for i, name := range w.line[:len(w.line)-1] {
			waits[name] = true
			if _, has := o.seats[name]; !has {
				o.seq++
				o.seats[name] = seat{o.time[w.line[i+1]], o.seq}
			}
		}
	}
	maps.DeleteFunc(o.seats, func(name string, _ seat) bool { return !waits[name] })
}

// first is who of those below a key is served first; nil if there is nobody, or each is held up
// by a key on the way.
func (o *oracle) first(key string) (best *wish) {
	for _, w := range o.waiting {
		if w.line[0] == key && (best == nil || compare(w, best) < 0) {
			best = w
		}
	}
	of := ""
	for name, w := range o.firsts(key) {
		if !o.full(name, w) && (best == nil || o.compare(name, w, of, best) < 0) {
			of, best = name, w
		}
	}
	return best
}

// firsts are the keys below one where somebody waits that no key below them holds up, each with the first.
func (o *oracle) firsts(key string) map[string]*wish {
	of := map[string]*wish{}
	for _, w := range o.waiting {
		if i := slices.Index(w.line, key); i > 0 && of[w.line[i-1]] == nil {
			if first := o.first(w.line[i-1]); first != nil {
				of[w.line[i-1]] = first
			}
		}
	}
	return of
}

// compare is the order of two keys below one, each with its first.
func (o *oracle) compare(a string, of *wish, b string, than *wish) int {
	x, y := o.seats[a], o.seats[b]
	return cmp.Or(
		cmp.Compare(o.holds(a)*100/o.share(a), o.holds(b)*100/o.share(b)),
		cmp.Compare(x.base+o.cost(a, of), y.base+o.cost(b, than)),
		cmp.Compare(x.seq, y.seq),
	)
}

// compare is the order of two in one line.
func compare(a, b *wish) int {
	return cmp.Or(cmp.Compare(a.place, b.place), strings.Compare(a.id.String(), b.id.String()))
}

func (o *oracle) holds(key string) (weight int) {
	for _, w := range o.held {
		if slices.Contains(w.line, key) {
			weight += w.id.Weight
		}
	}
	return weight
}

func (o *oracle) cap(key string) int {
	depth := strings.Count(key, "\x01")
	switch own := o.rules[key].cap; {
	case key == everything:
		return o.limit
	case own > 0:
		return own
	case key == "" || strings.HasSuffix(key, "\x01") || o.caps[depth] == 0:
		return 1 << 50
	}
	return o.caps[depth]
}

func (o *oracle) share(key string) int { return cmp.Or(o.rules[key].share, 100) }

func (o *oracle) cost(key string, w *wish) int64 {
	return max(1, int64(w.id.Weight*1000/o.share(key)))
}

// full reports whether a key is held up, as far as it was seen.
func (o *oracle) full(key string, first *wish) bool { return o.lacks(key, first, o.seen[key]) }

// lacks reports whether a key with a cap must give back something before its first may be served.
func (o *oracle) lacks(key string, first *wish, most int) bool {
	return first.id.Weight <= most && first.id.Weight > most-o.holds(key)
}

func (o *oracle) fits(w *wish) bool {
	return !o.paused && !slices.ContainsFunc(w.line, func(key string) bool { return w.id.Weight > o.cap(key)-o.holds(key) })
}

func (o *oracle) tooHeavy(w *wish) bool {
	return slices.ContainsFunc(w.line, func(key string) bool { return w.id.Weight > o.cap(key) })
}

func find(list []*wish, id engine.ID) *wish {
	for _, w := range list {
		if w.id == id {
			return w
		}
	}
	return nil
}

func without(list []*wish, id engine.ID) []*wish {
	return slices.DeleteFunc(list, func(w *wish) bool { return w.id == id })
}
