package ledger

import (
	"container/heap"
	"maps"
	"slices"

	"sema/engine"
	"sema/internal/protocol"
)

// Snapshot is a ledger as plain data, for engines that keep it outside of
// memory. Times are microseconds of the engine's clock.
type Snapshot struct {
	Limit      int
	Pinned     bool
	Paused     bool
	Token      int64
	Keep       int64
	Cooldown   int64         // its end; 0: there is none
	CooledBy   engine.Client // who said so
	Alarm      int64
	Watcher    engine.ID
	Observed   *Observed // nil: the limit is enforced
	Unfinished bool      // see Ledger.Unfinished
	Holders    []Recorded
	Waiters    []Recorded
	Fences     map[string][2]int64 // client: number, end
	Keepers    map[string]Keeper   // client: what it was told

	Keyed bool // whether it tells keys apart, and what it knows of them
	Caps  engine.Caps
	Pools engine.Pools
	Rates map[string]Rate         // of those that are rates, or were while permits held some
	Spent map[engine.ID][]float64 // by holder: of each pool that it takes, until when a rate counts as its own
	Due   int64                   // when time will have brought what some ticket waits for; 0: none waits for that alone
	Time  int64                   // virtual
	Seq   int64
	Epoch int
	Keys  []RecordedKey // those that wait, have a rule, or others below them

	Reports map[string]Reported // client: how its holds have gone
	Auto    ReportedAuto
}

// Rate is what is known of a pool that comes back with time: see Ledger.settle. Microseconds.
type Rate struct{ Full, Given float64 }

// RecordedKey is one of the keys that share a semaphore. What it holds follows from
// the permits.
type RecordedKey struct {
	Name       string // its path; with a separator behind it, the leaf of its own callers
	Set        string // "": the record of the key; else what it waits for of this set of pools: Start, Seq, Blocked and Epoch
	Above      bool   // others are below it
	Over       bool   // it holds more than its cap
	Time       int64  // among those, virtual
	Ruled      bool
	Cap, Share int
	Start, Seq int64 // if it waits
	Blocked    bool
	Epoch      int // if it is blocked
}

// Recorded is a permit or a ticket.
type Recorded struct {
	ID engine.ID
	protocol.Target
	End      int64 // of the lease, or of the ticket
	Since    int64 // holders: the grant
	Token    int64
	Slot     int // holders: -1 for none
	Revoked  bool
	Place    int64 // waiters
	Lease    int64 // waiters with a ticket that lasts
	Insist   bool  // waiters
	Behind   int   // waiters
	Detached bool
	Via      string // the session that receives its notifications
	Rival    string // another that has asked for it
	Client   engine.Client
}

// Keeper is what a client was told that it may do with released permits, and
// until when.
type Keeper struct {
	End  int64
	Room bool // keys waited, and none in turn
}

// Save is the ledger as data.
func (l *Ledger) Save() Snapshot {
	s := Snapshot{Limit: l.limit, Pinned: l.pinned, Paused: l.paused, Token: l.token, Keep: l.keep, Cooldown: l.cooldown, CooledBy: l.cooledBy, Observed: l.observed.clone(), Alarm: l.alarm, Watcher: l.watcher, Unfinished: l.unfinished}
	s.Holders = slices.Grow(s.Holders, len(l.ends))
	for _, h := range l.ends {
		r := h.record()
		r.Since, r.Token, r.Slot, r.Revoked = h.since, h.token, h.slot, h.revoked
		s.Holders = append(s.Holders, r)
	}
	s.Waiters = slices.Grow(s.Waiters, len(l.tickets))
	for _, t := range l.line {
		r := t.record()
		r.Place, r.Lease, r.Insist, r.Behind, r.Revoked = t.place, t.lease, t.insist, t.behind, t.revoked
		s.Waiters = append(s.Waiters, r)
	}
	for client, f := range l.fences {
		if s.Fences == nil {
			s.Fences = map[string][2]int64{}
		}
		s.Fences[client] = [2]int64{int64(f.number), f.end}
	}
	s.Keepers, s.Reports, s.Auto = maps.Clone(l.keepers), maps.Clone(l.reports), l.auto
	ks := &l.keys
	if !ks.on {
		return s
	}
	s.Keyed, s.Caps, s.Pools, s.Time, s.Seq, s.Epoch = true, ks.caps, ks.amounts, ks.root.time, ks.seq, ks.epoch
	s.Due, s.Spent = l.due, maps.Clone(l.spent)
	for name, p := range ks.pools {
		if p.full > 0 {
			if s.Rates == nil {
				s.Rates = map[string]Rate{}
			}
			s.Rates[name] = Rate{p.full, p.given}
		}
	}
	for _, k := range ks.sorted() {
		of := RecordedKey{Name: k.name, Above: k.own != nil, Over: k.over, Time: k.time, Ruled: k.ruled, Cap: k.cap, Share: k.share}
		for _, c := range k.classes {
			if c.set == "" && c.waiting > 0 {
				of.Start, of.Seq, of.Blocked, of.Epoch = c.start, c.seq, c.state == blocked, c.epoch
			}
		}
		if k.ruled || k.own != nil || k.over || k.waits() {
			s.Keys = append(s.Keys, of)
		}
		for _, c := range k.classes {
			if c.set != "" && c.waiting > 0 {
				s.Keys = append(s.Keys, RecordedKey{Name: k.name, Set: c.set, Start: c.start, Seq: c.seq, Blocked: c.state == blocked, Epoch: c.epoch})
			}
		}
	}
	return s
}

// Load makes a ledger of data that Save returned. Keys come first, then what counts for them, then the order of those that
// wait: it depends on both.
func Load(s Snapshot) *Ledger {
	l := &Ledger{
		limit: s.Limit, pinned: s.Pinned, paused: s.Paused, token: s.Token, keep: s.Keep, cooldown: s.Cooldown, cooledBy: s.CooledBy, observed: s.Observed.clone(), alarm: s.Alarm, watcher: s.Watcher, unfinished: s.Unfinished,
		holders: map[engine.ID]*holder{}, tickets: map[engine.ID]*ticket{}, slots: map[int]*holder{},
	}
	recorded := l.loadKeys(&s)
	l.loadEntries(&s)
	l.loadOrder(recorded)
	for client, f := range s.Fences {
		if l.fences == nil {
			l.fences = map[string]fence{}
		}
		l.fences[client] = fence{uint64(f[0]), f[1]}
	}
	for name := range s.Rates {
		l.keys.forgetPool(name) // Redis may still have one whose permits are gone
	}
	l.keepers, l.reports, l.auto = maps.Clone(s.Keepers), maps.Clone(s.Reports), s.Auto
	return l
}

// loadKeys makes the keys that were recorded. It returns their records.
func (l *Ledger) loadKeys(s *Snapshot) map[*key][]RecordedKey {
	ks := &l.keys
	ks.on, ks.caps, ks.root.time, ks.seq, ks.epoch = s.Keyed, s.Caps, s.Time, s.Seq, s.Epoch
	ks.setPools(0, s.Pools)
	l.due, l.spent = s.Due, maps.Clone(s.Spent)
	for name, r := range s.Rates {
		p := ks.pool(name)
		p.full, p.given = r.Full, r.Given
	}
	recorded := map[*key][]RecordedKey{}
	for _, r := range s.Keys { // those above before those below
		k := l.key(r.Name)
		recorded[k] = append(recorded[k], r)
		if r.Set != "" {
			continue
		}
		if r.Above {
			l.branch(k)
		}
		k.time, k.ruled, k.cap, k.share = r.Time, r.Ruled, r.Cap, r.Share
		ks.rules += bit(r.Ruled)
	}
	return recorded
}

// loadEntries makes the permits and tickets, and counts them.
func (l *Ledger) loadEntries(s *Snapshot) {
	for _, r := range s.Holders {
		h := &holder{entry: l.recorded(&r), since: r.Since, token: r.Token, slot: r.Slot, revoked: r.Revoked}
		l.used += h.weight
		l.hold(&h.demand, 1)
		l.holders[h.id] = h
		if h.slot >= 0 {
			l.slots[h.slot] = h
		}
		heap.Push(&l.ends, h)
	}
	for _, r := range s.Waiters {
		l.enqueue(&ticket{entry: l.recorded(&r), place: r.Place, lease: r.Lease, insist: r.Insist, behind: r.Behind, revoked: r.Revoked})
	}
}

// loadOrder puts classes where they were recorded, those below before those above. Which keys are above their caps is as
// recorded, too: caps may have changed since, see noteOver.
func (l *Ledger) loadOrder(recorded map[*key][]RecordedKey) {
	ks := &l.keys
	ks.over = 0
	for _, k := range slices.Backward(ks.sorted()) {
		k.over = len(recorded[k]) > 0 && recorded[k][0].Over
		ks.over += bit(k.over)
		late := false
		for _, c := range k.classes {
			l.unlist(c)
			i := slices.IndexFunc(recorded[k], func(r RecordedKey) bool { return r.Set == c.set && r.Seq > 0 })
			if i < 0 {
				late = late || c.waiting > 0 // it began to wait after its record was read
				continue
			}
			r := recorded[k][i]
			if c.waiting == 0 {
				continue // its record is of an earlier wait
			}
			c.start, c.seq = r.Start, r.Seq
			if head := c.head(); r.Blocked {
				ks.listBlocked(c, r.Epoch)
			} else if head != nil {
				ks.listRunnable(c, head)
			}
		}
		if late || len(k.classes) == 0 {
			for _, c := range k.classes {
				l.unlist(c)
			}
			l.schedule(k)
		}
	}
}

// record is an entry as data, and recorded the reverse.
func (e *entry) record() Recorded {
	return Recorded{ID: e.id, Target: e.target(), End: e.end, Detached: e.detached, Via: e.via, Rival: e.rival, Client: e.who}
}

func (l *Ledger) recorded(r *Recorded) entry {
	return entry{
		id: r.ID, demand: demand{key: l.inUse(string(r.Key)), weight: r.ID.Weight, takes: r.Takes, set: r.Takes.Names()},
		end: r.End, detached: r.Detached, owner: owner{r.Via, r.Rival, r.Client},
	}
}

// Clients lists the clients that have a permit or a ticket which ends with
// them, sorted.
func (l *Ledger) Clients() []string {
	var clients []string
	for _, h := range l.holders {
		if !h.detached {
			clients = append(clients, h.via)
		}
	}
	for _, t := range l.tickets {
		if !t.detached {
			clients = append(clients, t.via)
		}
	}
	slices.Sort(clients)
	return slices.Compact(clients)
}
