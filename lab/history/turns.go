package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"
)

// Turns is what became of those who waited beside other keys.
type Turns struct {
	Waits    int // judged
	Passed   int // grants to other keys while one waited, at its level
	Most     int // of these to one other key, in one wait
	Allowed  int // as many were allowed there
	Late     int // of Passed: passed on within a process that cannot have known yet that another waits
	Unsure   int // not counted in Passed: the other key may have held less, for its share
	Breaches int
}

// Turns counts who was passed by whom among the keys of a semaphore.
func (r *Round) Turns(sem int) Turns {
	t, _ := newJudge(r).turns(sem)
	return t
}

// turn is an acquisition with what is known of its grant.
type turn struct {
	*acquisition
	at          int64 // when the engine granted it
	passed      bool  // within its process, from another caller
	crowded     bool  // other callers of its key waited in its process: its ticket may have been theirs
	least, most int   // what its key held then, without it
}

// ahead is how much later than the grant a token may say that it was: grants of one step
// have tokens that follow each other.
const ahead = int64(time.Millisecond)

// turns judges how often keys pass each other: while a key waits under its cap and
// holds a number of whole shares, another key that holds as many is served no more often
// before it than the cost of the one's request is that of the other's, and once if they
// cost the same. A key that holds more is not served before it at all.
//
// Judged is who waits alone of its key in its process: then the ticket is known. The wait
// is cut where something else happens to its key. What the other key holds is the least
// that it can hold: permits whose release has not begun.
func (j *judge) turns(sem int) (Turns, []Breach) {
	s, tally := j.Semaphores[sem], Turns{}
	keys, granted := j.granted(sem)
	var breaches []Breach
	for _, a := range granted {
		if a.at < a.call-ahead || a.at > a.got+ahead {
			if !a.passed {
				breaches = append(breaches, Breach{Promise: PromiseTurn, Semaphore: s.Name, At: a.got, Text: a.name() + " has a token of another time than that of its wait: the clock is not the server's"})
			}
			continue
		}
		if a.queued == 0 || a.passed || a.crowded {
			continue
		}
		tally.Waits++
		for _, w := range stands(a, keys[a.key], s) {
			found := j.overtakings(w, a, granted, s, &tally)
			breaches = append(breaches, found...)
			tally.Breaches += len(found)
		}
	}
	return tally, breaches
}

// granted are the acquisitions that got a permit, by key and all, in the order of grants.
func (j *judge) granted(sem int) (keys map[string][]*turn, all []*turn) {
	keys = map[string][]*turn{}
	type line struct {
		worker int
		key    string
	}
	first, last := map[string]int64{}, map[line]*turn{}
	for _, a := range j.bySem[sem] { // by call
		t := &turn{acquisition: a, at: a.token*1000 - j.Clock}
		in := line{a.worker, a.key}
		if before := last[in]; before != nil && a.call < before.end() {
			before.crowded, t.crowded = true, true
		}
		if before := last[in]; before == nil || t.end() > before.end() {
			last[in] = t
		}
		if a.got == 0 {
			continue
		}
		if token, ok := first[a.permit]; !ok || a.token < token {
			first[a.permit] = a.token
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *turn) int { return cmp.Compare(a.token, b.token) })
	holding := map[string][]*turn{}
	for _, t := range all {
		t.passed = t.token != first[t.permit]
		holding[t.key] = slices.DeleteFunc(holding[t.key], func(h *turn) bool { return h.released != 0 && h.released < t.at })
		for _, h := range holding[t.key] {
			t.most += h.weight
			if h.release == 0 || h.release > t.at+ahead {
				t.least += h.weight
			}
		}
		holding[t.key] = append(holding[t.key], t)
		keys[t.key] = append(keys[t.key], t)
	}
	return keys, all
}

// stand is a part of a wait in which nothing else happens to the key.
type stand struct {
	from, to int64
	head     int // the greatest weight that its next request may have
	level    int // whole shares that it holds, at the most
}

// stands are the parts of a wait in which its key is under its cap for certain.
func stands(a *turn, own []*turn, s Semaphore) (all []stand) {
	share, head := s.share(a.key), a.weight
	cuts := []span{{a.queued, a.queued}}
	var holders []*turn
	for _, o := range own {
		if o == a || o.at > a.at || o.released != 0 && o.released < a.queued {
			continue
		}
		holders = append(holders, o)
		if o.at > a.queued {
			cuts = append(cuts, span{o.at, o.at})
		}
		if o.release != 0 && o.release < a.at {
			cuts = append(cuts, span{o.release, cmp.Or(o.released, never)})
		}
	}
	for _, o := range own {
		if o != a && o.call < a.at && o.at > a.queued {
			head = max(head, o.weight)
		}
	}
	slices.SortFunc(cuts, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	from := a.queued
	for i, c := range cuts {
		from = max(from, c.to)
		to := a.at
		if i+1 < len(cuts) {
			to = cuts[i+1].from
		}
		if from >= to {
			continue
		}
		held := 0
		for _, o := range holders {
			if o.at < to && (o.released == 0 || o.released > from) {
				held += o.weight
			}
		}
		if most := s.cap(a.key); most == 0 || held+head <= most {
			all = append(all, stand{from, to, head, held * defaultShare / share})
		}
	}
	return all
}

// overtakings judges what other keys got in a part of a wait.
func (j *judge) overtakings(w stand, a *turn, granted []*turn, s Semaphore, tally *Turns) (breaches []Breach) {
	type passing struct {
		times, late, least int
		last               *turn
	}
	by := map[string]*passing{}
	at := sort.Search(len(granted), func(i int) bool { return granted[i].at > w.from+ahead })
	for ; at < len(granted) && granted[at].at < w.to && granted[at].token < a.token; at++ {
		b := granted[at]
		share := s.share(b.key)
		switch {
		case b.key == a.key || b.most*defaultShare/share < w.level:
			continue
		case b.least*defaultShare/share < w.level:
			tally.Unsure++
			continue
		}
		p := by[b.key]
		if p == nil {
			p = &passing{}
			by[b.key] = p
		}
		p.times++
		p.last = b
		if cost := s.cost(b.weight, b.key); p.least == 0 || cost < p.least {
			p.least = cost
		}
		if b.passed && b.at < a.queued+int64(Slack) {
			p.late++
		}
	}
	own := s.cost(w.head, a.key)
	for key, p := range by {
		most := max(1, (own+p.least-1)/p.least)
		tally.Passed += p.times
		tally.Late += p.late
		if p.times > tally.Most {
			tally.Most, tally.Allowed = p.times, most
		}
		if p.times-p.late > most {
			breaches = append(breaches, Breach{
				Promise: PromiseTurn, Semaphore: s.Name, At: p.last.got, Over: time.Duration(w.to - w.from),
				Text: fmt.Sprintf("%s (key %q, weight %d) waits from %s to %s at level %d, and key %q is served %d times, the last time to %s; %d are allowed",
					a.name(), a.key, a.weight, ms(w.from-j.start), ms(w.to-j.start), w.level, key, p.times-p.late, p.last.name(), most),
				Excused: j.excuse(p.last.got, s.Lease, func(*Window) bool { return true }),
			})
		}
	}
	return breaches
}

// What a key has without a rule, and the cost of one permit at a share of 1.
const (
	defaultShare = 100
	unit         = 1000
)

// cap is the most that a key may hold; 0 is any weight.
func (s Semaphore) cap(key string) int { return cmp.Or(s.Rules[key].Cap, s.PerKey) }

func (s Semaphore) share(key string) int { return cmp.Or(s.Rules[key].Share, defaultShare) }

// cost is what a permit of a weight costs a key in the order of turns.
func (s Semaphore) cost(weight int, key string) int { return max(1, weight*unit/s.share(key)) }
