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
// A ledger does not look at all keys when the caps of all keys fall, or when something is kept free. So
// the oracle knows how each key was last seen, too.
type oracle struct {
	limit    int
	caps     engine.Caps
	pools    map[string]int
	other    bool // the caps have changed
	rules    map[string]rule
	paused   bool
	cooldown int64 // until when nobody is served
	waiting  []*wish
	held     []*wish
	above    map[string]bool // keys that callers of others below them have asked for

	seen  map[string]sight // how a key was seen when it was found full, or not
	seats map[place]seat   // of the keys that wait
	time  map[string]int64 // of the keys above them, virtual
	seq   int64
	round reserving
	turns int // how many tickets the step may still serve or drop, fewer with many sets, and how many smaller caps it may look at

	known map[place]*wish // the first, until something changes
	stood map[place]bool  // whether it is full
}

// place is where those of a key wait who want the same pools.
type place struct{ key, set string }

// sight is what a ledger goes by when it looks at a key.
type sight struct {
	caps engine.Caps
	kept map[string]int // weight, by key
}

// reserving is what a step keeps free, since it last granted something.
type reserving struct {
	all     bool           // it knows who else might be served
	kept    map[string]int // weight, by key
	pools   map[string]int
	awaited map[string]bool // pools that a ticket ahead waits for
	moved   [][]string      // the keys that something was kept free of, and that were looked at
}

// wish is a ticket, and then a permit.
type wish struct {
	id    engine.ID
	line  []string // its keys, from the line that it stands in to the semaphore
	takes map[string]int
	set   string // the pools that it wants some of
	place int64
	end   int64 // of the ticket, or of the lease
}

type rule struct{ cap, share int }

// seat is since when a key waits for a set of pools, or was last served: in virtual time, and as which.
type seat struct{ base, seq int64 }

// everything is the name of the semaphore among the names of keys.
const everything = "\x00"

func newOracle() *oracle {
	return &oracle{pools: map[string]int{}, rules: map[string]rule{}, above: map[string]bool{}, seen: map[string]sight{}, seats: map[place]seat{}, time: map[string]int64{}}
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
	o.changed()
	o.turns = 32
	if o.cooldown <= now {
		o.cooldown = 0
	}
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
		was := o.rules[string(r.Key)]
		o.rules[string(r.Key)] = rule{cmp.Or(r.Cap, was.cap), cmp.Or(r.Share, was.share)}
		o.look(lineOf(string(r.Key)))
	case protocol.UnsetKey:
		delete(o.rules, string(r.Key))
		o.look(lineOf(string(r.Key)))
	case protocol.SetLimit:
		o.limit = cmp.Or(r.Limit, o.limit)
		for i, c := range r.Caps {
			o.caps[i] = max(0, cmp.Or(c, o.caps[i]))
		}
		for name, n := range r.Pools.All() {
			if o.pools[name] = n; n == 0 {
				delete(o.pools, name)
			}
		}
		o.other = true
	case protocol.Pause, protocol.Unpause:
		o.paused = r.Kind == protocol.Pause
		if !o.paused {
			o.cooldown = 0
		}
	case protocol.Cooldown:
		o.cooldown = max(o.cooldown, now+r.Lease.Microseconds())
	}
	grants = append(grants, o.grant(now, 1<<62)...)
	o.endPass()
	return is, grants
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
	left := len(o.pools) > 0 && o.left(o.wish(r, place))
	o.endPass()
	if h := find(o.held, r.ID); h != nil {
		h.end = now + r.Lease.Microseconds()
		return protocol.Granted, grants
	}
	w = o.wish(r, place) // it may have been silent, and be gone
	switch {
	case o.fits(w) && (r.Unfair || left || o.before(w, r, place)):
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

// wish finds the ticket of an ask, or is a new one. Then the keys above its key have others below them, and
// the line of their own callers is one of those.
func (o *oracle) wish(r *protocol.Request, at int64) *wish {
	if w := find(o.waiting, r.ID); w != nil {
		return w
	}
	key, takes := string(r.Key), r.Takes
	w := &wish{id: r.ID, line: lineOf(key), takes: takes.Map(), set: takes.Names(), place: at}
	for _, name := range slices.Backward(w.line[:len(w.line)-1]) {
		switch own := name + "\x01"; {
		case name == "" || strings.HasSuffix(name, "\x01"):
		case name == key:
			o.above[key] = o.above[key] && (o.holds(key) > 0 || len(o.sets(key)) > 0)
			o.changed()
		case !o.above[name]:
			o.above[name] = true
			o.changed()
			for _, set := range o.sets(own) {
				o.seq++
				o.seats[place{own, set}] = seat{o.time[name], o.seq}
			}
		}
	}
	return w
}

// changed forgets what was worked out.
func (o *oracle) changed() { o.known, o.stood = map[place]*wish{}, map[place]bool{} }

// sets are the sets of pools that are waited for at a key, sorted.
func (o *oracle) sets(key string) (sets []string) {
	for _, w := range o.waiting {
		if slices.Contains(w.line, key) {
			sets = append(sets, w.set)
		}
	}
	slices.Sort(sets)
	return slices.Compact(sets)
}

// before reports whether an ask comes before all that wait: those of its line, the runnable keys
// beside those of its path, and those who want other pools.
func (o *oracle) before(w *wish, r *protocol.Request, at int64) bool {
	fresh := find(o.waiting, r.ID) == nil // it has no ticket yet
	for _, other := range o.waiting {
		ahead := other != w && (fresh || compare(other, w) < 0)
		if ahead && other.line[0] == w.line[0] && other.set == w.set && !(r.Wait && at < other.place) {
			return false
		}
	}
	for i, name := range w.line[:len(w.line)-1] {
		for beside := range o.firsts(w.line[i+1], w.set) {
			if beside != name {
				return false
			}
		}
		if sets := o.sets(name); slices.ContainsFunc(sets, func(set string) bool { return set != w.set }) && o.blocksAll(name, sight{caps: o.caps}) {
			return false
		}
	}
	for _, set := range o.sets(everything) {
		if set != w.set && o.first(everything, set) != nil {
			return false
		}
	}
	return true
}

// left reports whether an ask fits beside all that the step keeps free, and nobody of its own lane waits before it.
func (o *oracle) left(w *wish) bool {
	if !o.round.all || !o.fits(w) {
		return false
	}
	for name := range w.takes {
		if o.round.awaited[name] {
			return false
		}
	}
	for _, name := range w.line[:len(w.line)-1] {
		if o.full(name, w.set) || o.blocksAll(name, sight{caps: o.caps}) {
			return false
		}
	}
	for _, other := range o.waiting {
		if other.line[0] == w.line[0] && other.set == w.set && other.id != w.id && (find(o.waiting, w.id) == nil || compare(other, w) < 0) {
			return false
		}
	}
	return true
}

func (o *oracle) halted() bool { return o.paused || o.cooldown > 0 }

// grant hands out free weight, to those who came no later than a time.
func (o *oracle) grant(now, upTo int64) (grants []engine.ID) {
	if o.other {
		o.lookAtFull()
		o.other = false
	}
	for !o.halted() {
		w, drop := o.next(now, upTo)
		if w == nil || o.turns <= 0 {
			return grants
		}
		o.turns -= 1 + len(slices.DeleteFunc(o.sets(everything), func(set string) bool { return set == "" }))/4
		o.endPass()
		if drop {
			o.drop(w.id)
			continue
		}
		o.serve(w)
		grants = append(grants, w.id)
	}
	return grants
}

// next is the ticket that is served or dropped next. Each one before it that is blocked keeps free all that
// its caller wants.
func (o *oracle) next(now, upTo int64) (w *wish, drop bool) {
	p := &o.round
	for {
		w := o.firstOf(everything, func(set string) bool {
			return !slices.ContainsFunc(strings.Split(set, ","), func(name string) bool { return p.awaited[name] })
		})
		p.all = w == nil
		if w == nil || w.place > upTo {
			return nil, false
		}
		if o.tooHeavy(w) {
			return w, true
		}
		i := slices.IndexFunc(w.line, func(key string) bool { return o.blocks(key, w, sight{o.caps, p.kept}) })
		if i >= 0 && w.line[i] != everything {
			if p.kept[w.line[i]] == 0 {
				if o.turns <= 0 {
					return nil, false
				}
				o.turns--
			}
			if len(p.kept) > 0 {
				p.moved = append(p.moved, w.line[i:])
			}
			o.look(w.line[i:]) // its cap is smaller than it was, or what is left of it is kept free
			continue
		}
		if w.end <= now {
			return w, true
		}
		short := o.shortPools(w)
		full := w.id.Weight > o.limit-o.holds(everything)-p.kept[everything]
		if !full && len(short) == 0 {
			return w, false
		}
		if p.kept == nil {
			p.kept, p.pools, p.awaited = map[string]int{}, map[string]int{}, map[string]bool{}
		}
		for _, name := range short {
			p.awaited[name] = true
		}
		for _, key := range w.line {
			p.kept[key] += w.id.Weight
		}
		for name, n := range w.takes {
			p.pools[name] += n
		}
		if full {
			p.all = true
			return nil, false
		}
	}
}

// endPass keeps nothing free any more.
func (o *oracle) endPass() {
	moved := o.round.moved
	o.round = reserving{}
	for _, line := range moved {
		o.look(line)
	}
}

// shortPools are the pools that have less left than a ticket wants. What is kept free is not left.
func (o *oracle) shortPools(w *wish) (short []string) {
	for name, n := range w.takes {
		if n > o.pools[name]-o.usedOf(name)-o.round.pools[name] {
			short = append(short, name)
		}
	}
	return short
}

func (o *oracle) usedOf(pool string) (used int) {
	for _, w := range o.held {
		used += w.takes[pool]
	}
	return used
}

// look sees some keys, and those below them, as they are.
func (o *oracle) look(line []string) {
	o.changed()
	for _, name := range line {
		o.seen[name] = sight{o.caps, maps.Clone(o.round.kept)}
	}
}

// lookAtFull sees the caps of the full keys, and of those above them.
func (o *oracle) lookAtFull() {
	var full [][]string
	for _, w := range o.waiting {
		for i, name := range w.line[:len(w.line)-1] {
			if o.full(name, w.set) {
				full = append(full, w.line[i:])
			}
		}
	}
	for _, line := range full {
		o.look(line)
	}
}

// serve gives a permit to somebody, and new seats to the keys of its path where others wait for the same pools.
func (o *oracle) serve(w *wish) {
	o.waiting, o.held = without(o.waiting, w.id), append(o.held, w)
	for i, name := range w.line[:len(w.line)-1] {
		up, at := w.line[i+1], place{name, w.set}
		o.time[up] = max(o.time[up], o.seats[at].base+o.cost(name, w))
		o.seq++
		o.seats[at] = seat{o.time[up], o.seq}
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
	o.changed()
	waits := map[place]bool{}
	for _, w := range o.waiting {
		for i, name := range w.line[:len(w.line)-1] {
			at := place{name, w.set}
			waits[at] = true
			if _, has := o.seats[at]; !has {
				o.seq++
				o.seats[at] = seat{o.time[w.line[i+1]], o.seq}
			}
		}
	}
	maps.DeleteFunc(o.seats, func(at place, _ seat) bool { return !waits[at] })
}

// first is who of those below a key is served first, of those who want the same pools; nil if there is
// nobody, or each is held up by a key on the way.
func (o *oracle) first(key, set string) (best *wish) {
	at := place{key, set}
	if w, ok := o.known[at]; ok {
		return w
	}
	defer func() { o.known[at] = best }()
	for _, w := range o.waiting {
		if w.line[0] == key && w.set == set && (best == nil || compare(w, best) < 0) {
			best = w
		}
	}
	of := ""
	for name, w := range o.firsts(key, set) {
		if best == nil || o.compare(name, o.holdsOf(name, set), w, of, o.holdsOf(of, set), best) < 0 {
			of, best = name, w
		}
	}
	return best
}

// firsts are the runnable keys below one, each with its first.
func (o *oracle) firsts(key, set string) map[string]*wish {
	of := map[string]*wish{}
	for _, w := range o.waiting {
		if i := slices.Index(w.line, key); i > 0 && w.set == set && of[w.line[i-1]] == nil {
			if first := o.first(w.line[i-1], set); first != nil && !o.full(w.line[i-1], set) {
				of[w.line[i-1]] = first
			}
		}
	}
	return of
}

// firstOf is the ticket of some sets that is served first below a key. A key without others below it serves its
// callers in the order in which they came.
func (o *oracle) firstOf(key string, open func(set string) bool) (best *wish) {
	below := func(w *wish) string { return w.line[max(0, slices.Index(w.line, key)-1)] }
	for _, set := range o.sets(key) {
		w := o.first(key, set)
		switch {
		case w == nil || !open(set) || best == w:
		case best == nil:
			best = w
		case key != everything && !o.above[key]:
			if compare(w, best) < 0 {
				best = w
			}
		default:
			both := ""
			for pool := range w.takes {
				if best.takes[pool] > 0 {
					both = strings.Trim(both+","+pool, ",")
				}
			}
			if o.compare(below(w), o.holdsOf(below(w), both), w, below(best), o.holdsOf(below(best), both), best) < 0 {
				best = w
			}
		}
	}
	return best
}

// compare is the order of two keys below one. Each has its first ticket, and the weight that counts as held.
func (o *oracle) compare(a string, holds int, of *wish, b string, held int, than *wish) int {
	x, y := o.seats[place{a, of.set}], o.seats[place{b, than.set}]
	return cmp.Or(
		cmp.Compare(holds*100/o.share(a), held*100/o.share(b)),
		cmp.Compare(x.base+o.cost(a, of), y.base+o.cost(b, than)),
		cmp.Compare(x.seq, y.seq),
	)
}

// compare is the order of two in one line.
func compare(a, b *wish) int {
	return cmp.Or(cmp.Compare(a.place, b.place), strings.Compare(a.id.String(), b.id.String()))
}

func (o *oracle) holds(key string) int { return o.holdsWith(key, "") }

// holdsWith is what a key holds with some of a pool; "": of any, or none.
func (o *oracle) holdsWith(key, pool string) (weight int) {
	for _, w := range o.held {
		if slices.Contains(w.line, key) && (pool == "" || w.takes[pool] > 0) {
			weight += w.id.Weight
		}
	}
	return weight
}

// holdsOf is what a key holds of those pools of a set of which it holds the most.
func (o *oracle) holdsOf(key, set string) (weight int) {
	for _, pool := range strings.Split(set, ",") {
		weight = max(weight, o.holdsWith(key, pool))
	}
	return weight
}

func (o *oracle) cap(key string) int { return o.capBy(key, o.caps) }

func (o *oracle) capBy(key string, caps engine.Caps) int {
	depth := strings.Count(key, "\x01")
	switch own := o.rules[key].cap; {
	case key == everything:
		return o.limit
	case own > 0:
		return own
	case key == "" || strings.HasSuffix(key, "\x01") || caps[depth] == 0:
		return 1 << 50
	}
	return caps[depth]
}

func (o *oracle) share(key string) int { return cmp.Or(o.rules[key].share, 100) }

func (o *oracle) cost(key string, w *wish) int64 {
	return max(1, int64(w.id.Weight*1000/o.share(key)))
}

// full reports whether a key blocks those who want a set of pools, as far as it was seen: if their first, or the first of
// all below it, has too little there, and at no key below it.
func (o *oracle) full(key, set string) (is bool) {
	at := place{key, set}
	if was, ok := o.stood[at]; ok {
		return was
	}
	defer func() { o.stood[at] = is }()
	first, by := o.first(key, set), o.seen[key]
	if first == nil {
		return false
	}
	lowest := slices.IndexFunc(first.line, func(name string) bool { return o.blocks(name, first, by) })
	return o.blocksAll(key, by) || o.isBlocker(key, first, by.caps) || by.kept[key] > 0 && lowest >= 0 && first.line[lowest] == key
}

// blocksAll reports whether a key blocks the first of all below it.
func (o *oracle) blocksAll(key string, by sight) bool {
	first := o.firstOf(key, func(string) bool { return true })
	return first != nil && o.isBlocker(key, first, by.caps)
}

// isBlocker reports whether a key, and none below it, blocks somebody.
func (o *oracle) isBlocker(key string, first *wish, caps engine.Caps) bool {
	for _, below := range first.line[:slices.Index(first.line, key)] {
		if first.id.Weight > o.capBy(below, caps)-o.holds(below) {
			return false
		}
	}
	return o.blocks(key, first, sight{caps: caps})
}

// blocks reports whether a key with a cap has to get something back before its first may be served.
func (o *oracle) blocks(key string, first *wish, by sight) bool {
	most := o.capBy(key, by.caps)
	return first.id.Weight <= most && first.id.Weight > most-o.holds(key)-by.kept[key]
}

func (o *oracle) fits(w *wish) bool {
	return !o.halted() && len(o.shortPools(w)) == 0 && !slices.ContainsFunc(w.line, func(key string) bool { return w.id.Weight > o.cap(key)-o.holds(key)-o.round.kept[key] })
}

func (o *oracle) tooHeavy(w *wish) bool {
	for name, n := range w.takes {
		if n > o.pools[name] {
			return true
		}
	}
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
