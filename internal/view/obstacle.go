package view

import (
	"fmt"
	"slices"

	"sema/engine"
	"sema/internal/ledger"
)

// This file asks the ledger what keeps a waiter from being served: it relieves what may, and looks whether the waiter is
// served then.

// mostRaises is how often bounds are raised for a waiter. Each raise makes room for at least one of those who go first.
const mostRaises = 8

// Obstacle is what keeps a waiter from being served. If all obstacles go, the waiter is served; if one stays, it is not.
// It is the pause, or those who go first, or a bound.
type Obstacle struct {
	Text     string
	Pause    bool
	Behind   int          // how many are before it in its queue
	Before   []engine.Key // beside the waiter's keys: where others go first
	Bound    *Bound       // has too little left
	Reserved int          // how much of the bound others want who go first, of other pools
}

// asked is what the ledger has said of a look.
type asked struct {
	before, after *ledger.Foreseen // nobody is served, or all that can be without the pause
	settled       bool             // both are the same
	known         map[question][]Obstacle
}

// question tells apart the waiters of a settled look that differ in their obstacles.
type question struct {
	queue
	takes  engine.Pools
	weight int
	first  bool // in its queue
}

// Obstacles are what Why names of a waiter that can be served.
func (l Look) Obstacles(w engine.Waiter) []Obstacle {
	if l.known == nil {
		st := l.State
		f := ledger.Foresee(&st)
		*l.asked = asked{before: f, after: f, settled: !l.Paused && l.Cooldown == nil, known: map[question][]Obstacle{}}
		if f.Serve() {
			l.before, l.settled = ledger.Foresee(&st), false
		}
	}
	x := inquiry{Look: l, w: w, i: len(l.Waiters), ahead: Obstacle{Behind: len(l.line[queueOf(w)])}}
	if w.ID != "" {
		x.i = slices.IndexFunc(l.Waiters, func(o engine.Waiter) bool { return o.ID == w.ID })
		x.ahead.Behind = l.Before[x.i]
	}
	before := x.ahead.Behind
	q := question{queueOf(w), w.Takes, w.Weight, before == 0}
	list, ok := l.known[q]
	if !ok || !l.settled || w.ID == "" {
		list = x.find()
	}
	if w.ID != "" {
		l.known[q] = list
	}
	list = slices.Clone(list)
	for i, o := range list {
		if o.Behind > 0 {
			list[i].Behind, list[i].Text = before, fmt.Sprintf("behind %d others%s%s", before, of(w.Key), o.Text)
			if before == 1 {
				list[i].Text = "behind 1 other" + of(w.Key) + o.Text
			}
		}
	}
	return list
}

// inquiry is about one waiter.
type inquiry struct {
	Look
	w      engine.Waiter
	i      int          // among the waiters; their number if it asks now
	part   engine.State // what counts, see look
	near   []queue
	bounds []Bound
	ahead  Obstacle        // those who are served first whatever bounds allow
	first  []engine.Waiter // those who are served first, or keep something free
	more   bool            // there are more of those
}

// relief is what is taken away from before the waiter.
type relief struct {
	ahead  bool
	raised []int // each bound by so much
}

// find begins with the bounds that are too small in any case. If others may be served meanwhile, it tries the rest.
func (x *inquiry) find() (list []Obstacle) {
	x.bounds = x.Bounds(x.w)
	if len(x.Pools) == 0 { // else it is said what they take
		f := x.before
		if x.w.ID == "" {
			f = ledger.Foresee(&x.State)
			f.Ask(x.w)
		}
		f.KeysBefore(x.i, x.w.ID == "", func(key engine.Key, before []engine.Key) {
			if x.ahead.Behind > 0 || x.ahead.Before != nil {
				x.ahead.Text += "; "
			}
			x.ahead.Text += fmt.Sprintf("keys before %s: %d", Title(key), len(before))
			x.ahead.Before = append(x.ahead.Before, before...)
		})
	}
	r := relief{x.ahead.Behind > 0 || x.ahead.Before != nil, nil}
	for _, b := range x.bounds {
		r.raised = append(r.raised, max(0, b.Wants-b.Limit+b.Held))
	}
	switch {
	case !x.settled && x.w.ID != "" && x.after.Served(x.i):
		r = relief{false, make([]int, len(x.bounds))}
	case len(x.Pools) > 0 || !x.settled && (r.ahead && slices.Max(r.raised) > 0 || x.w.ID == ""):
		r = x.least(r)
	}
	if x.Paused {
		list = append(list, Obstacle{Text: "paused by an operator", Pause: true})
	}
	if c := x.Cooldown; c != nil {
		list = append(list, Obstacle{Text: fmt.Sprintf("nobody begins for %s, said %s", Brief(c.Left), Says(c.By)), Pause: true})
	}
	if r.ahead {
		list = append(list, x.ahead)
	}
	for i, b := range x.bounds {
		if r.raised[i] > 0 {
			reserved := b.Limit + r.raised[i] - b.Held - b.Wants
			list = append(list, Obstacle{Text: b.say(reserved, x.first, x.more), Bound: &b, Reserved: reserved})
		}
	}
	return list
}

// least is as little relief as serves the waiter. It first raises bounds until there is room for all who go first. The waiter
// has to be served also if the bounds are that large from the beginning. Then it drops each part that is not needed.
func (x *inquiry) least(r relief) relief {
	x.look()
	plain := slices.Clone(r.raised)
	for range mostRaises {
		f, at := x.try(r)
		if x.more = !f.Served(at); !x.more {
			break
		}
		for n := 0; n < mostRaises && !f.Served(at); n++ {
			x.raise(f, at, r.raised)
		}
	}
	for again := !x.more; again; {
		again = false
		drop := func(less relief) {
			if f, at := x.try(less); f.Served(at) {
				r, again = less, true
			}
		}
		if r.ahead {
			drop(relief{false, r.raised})
		}
		for i := range r.raised {
			if less := slices.Clone(r.raised); less[i] > plain[i] {
				less[i] = plain[i]
				drop(relief{r.ahead, less})
			}
		}
	}
	return r
}

// raise raises all bounds of which the waiter lacks some, and serves.
func (x *inquiry) raise(f *ledger.Foreseen, at int, raised []int) {
	x.first = f.First(at)
	was := slices.Clone(raised)
	f.Lacks(at, func(key engine.Key, pool string, n int) {
		for i, b := range x.bounds {
			if b.Key == key && b.Pool == pool && b.Limit < engine.MaxLimit {
				raised[i] += n
			}
		}
	})
	for i, b := range x.bounds {
		f.Raise(b.Key, b.Pool, raised[i]-was[i])
	}
	f.Serve()
}

// look finds the queues from which somebody may be served before the waiter: for each set of pools the first ones, and the
// first ones below the waiter's top key. Only their keys count then.
func (x *inquiry) look() {
	all, below, keys := map[string]int{}, map[string]int{}, map[engine.Key]bool{}
	mine := queueOf(x.w)
	for _, q := range append([]queue{mine}, x.queues...) {
		of := all
		if q.key.First(1) == mine.key.First(1) {
			of = below
		}
		if of[q.set]++; q == mine || of[q.set] <= mostRaises {
			x.near = append(x.near, q)
			for _, key := range Path(q.key) {
				keys[key] = true
			}
		}
	}
	x.near = slices.DeleteFunc(x.near, func(q queue) bool { return q == mine })
	x.part = x.State
	x.part.Waiters, x.part.Keys = nil, nil
	x.part.Turns = slices.DeleteFunc(slices.Clone(x.Turns), func(t engine.Turn) bool { return !keys[t.Key] })
	x.part.Holders = slices.DeleteFunc(slices.Clone(x.Holders), func(h engine.Holder) bool {
		return h.Takes == "" || !slices.ContainsFunc(Path(h.Key), func(key engine.Key) bool { return keys[key] })
	})
	held := map[engine.Key]int{"": x.Used} // by own callers
	for _, k := range x.Keys {
		if k.Key != "" && !k.Key.Own() {
			held[k.Key.Above()] -= k.Held
			held[k.Key] += k.Held
		}
		if keys[k.Key] {
			x.part.Keys = append(x.part.Keys, k)
			delete(keys, k.Key)
		}
	}
	for key := range keys {
		if up := key.Above(); key == "" || key.Own() && held[up] < x.Key(up).Held { // the state does not list it, and others are beside it
			x.part.Keys = append(x.part.Keys, engine.KeyState{Key: key, Held: held[up]})
		}
	}
}

// try serves all that can be served after a relief, of those who may be served before the waiter.
func (x *inquiry) try(r relief) (f *ledger.Foreseen, at int) {
	st, mine := x.part, queueOf(x.w)
	for _, q := range x.near {
		if !(r.ahead && q.set == mine.set && slices.ContainsFunc(Path(q.key), func(k engine.Key) bool { return slices.Contains(x.ahead.Before, k) })) {
			st.Waiters = append(st.Waiters, x.line[q][:min(mostRaises, len(x.line[q]))]...)
		}
	}
	if !r.ahead {
		st.Waiters = append(st.Waiters, x.line[mine][:x.ahead.Behind]...)
	}
	at = len(st.Waiters)
	if x.w.ID != "" {
		st.Waiters = append(st.Waiters, x.w)
	}
	if f = ledger.Foresee(&st); x.w.ID == "" {
		f.Ask(x.w)
	}
	for i, b := range x.bounds {
		f.Raise(b.Key, b.Pool, r.raised[i])
	}
	f.Serve()
	return f, at
}
