package simulate

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

const (
	millisecond = int64(1000)
	second      = 1000 * millisecond
)

// plan is drawn from a seed: the participants, and how often each fault occurs.
// A rate of n means once in n times, 0 never.
type plan struct {
	seed    uint64
	limit   int
	length  int64 // of the run, before everything is wound up
	enough  int   // events, after which it is wound up as well: many short runs see more than few long ones
	delay   int64 // the longest a message takes, unless it is late
	clients []clientPlan

	loseCall, loseReply, loseNews int // rates for each message
	lateCall, lateReply, lateNews int
	doubleNews                    int

	pauses, crashes, cuts    int64 // mean time between two, in microseconds; 0: none
	restarts, forgets, steps int64
	refusals                 int64
	limits, revokes, unsets  int64
	stops, lostSubscriptions int64
	cools                    int64 // two words of a holder that nobody is to begin for a while
	failovers                int64 // if any, grants count only when the replica has them
	lag                      int   // rate of steps that are late at the replica
	hurried                  bool  // permits pass on faster than the clock ticks, and so tokens grow faster
	watched                  bool  // the engine is of one host, as files are; see watch.go

	reports    int64 // mean time between two reports of a process
	controller bool  // some of those that set the limit are controllers

	keys  []engine.Key // that callers share the semaphore under; none: it has no keys
	caps  engine.Caps
	rules int64 // mean time between two changes of the keys' rules

	pools   engine.Pools   // how much there is of each; "": there are none
	takes   []engine.Pools // what callers take of them
	amounts int64          // mean time between two changes of the amounts

	users                          int // of the JSON API; see user.go
	userWeight                     int
	userLease, userHold, userThink int64
	breaks                         int // rate of connections that break
}

// clientPlan is what one process is like.
type clientPlan struct {
	callers                                 int
	lease                                   int64
	maxWeight                               int
	hold, think                             int64 // at the most
	patience                                int64 // callers give up after, at most; 0: never
	slots, unfair, strict, newest, detached bool
	noRenewal                               bool
	maxHold                                 int64
	try                                     int   // rate of TryAcquire
	lasting                                 bool  // its tickets live as long as it does
	look                                    int   // rate of holders that look whether they still hold
	keep                                    int64 // how long released permits are kept
	serves                                  bool  // a server of the JSON API: its callers are users
	priority                                int64 // of some callers, at most; 0: none has any
}

// draw makes the plan of a seed. A third of all seeds have no faults, so that
// what must hold then is checked as well.
func draw(seed uint64) (plan, *rand.Rand) {
	rng := rand.New(rand.NewPCG(seed, 0x5e3a))
	pick := func(of ...int64) int64 { return of[rng.IntN(len(of))] }
	maybe := func(n int, value int64) int64 {
		if rng.IntN(n) == 0 {
			return value
		}
		return 0
	}
	starts := drawPriorities(seed)
	keys, caps := drawKeys(seed)
	pools, takes, change := drawPools(seed)
	p := plan{seed: seed, enough: 8000, keys: keys, pools: pools, takes: takes, limit: 1 + rng.IntN(5), delay: pick(100, 500, 2000)}
	lease := pick(100, 300, 1000, 3000) * millisecond
	p.length = 8 * lease
	weights := int(pick(1, 1, 1, int64(p.limit)))
	slots := rng.IntN(4) == 0
	hold := pick(0, 100, 100, 2000, 2000, lease/20, lease/20, lease/3)
	p.hurried = hold == 0
	p.watched = rng.IntN(4) == 0
	for range 1 + rng.IntN(4) {
		c := clientPlan{
			callers: int(pick(1, 1, 2, 5)), lease: lease * pick(1, 1, 1, 3, 10), maxWeight: weights,
			hold: hold, think: pick(10, 1000, max(1, hold)), patience: maybe(4, lease), slots: slots,
			unfair: rng.IntN(20) == 0, try: int(maybe(3, 4)),
			noRenewal: rng.IntN(10) == 0, detached: rng.IntN(20) == 0, newest: rng.IntN(20) == 0, strict: rng.IntN(30) == 0,
			lasting: p.watched && rng.IntN(8) > 0, look: int(maybe(2, 3)),
		}
		if starts {
			c.priority = c.lease
		}
		if rng.IntN(2) == 0 {
			c.keep = pick(1, 500, 5000, c.lease/20)
		}
		if rng.IntN(4) == 0 {
			c.callers *= 5
		}
		if rng.IntN(10) == 0 {
			c.hold = 3 * c.lease // renewed
		}
		if rng.IntN(15) == 0 {
			c.maxHold = pick(max(c.lease/2, 100*millisecond), max(c.lease/100, 30*p.delay))
		}
		p.clients = append(p.clients, c)
	}
	if users := rng.IntN(4) == 0; users {
		p.users, p.userWeight, p.userLease = 1+rng.IntN(8), weights, lease*pick(1, 1, 3)
		p.userHold, p.userThink = hold, pick(10, 1000, max(1, hold))
		if rng.IntN(10) == 0 {
			p.userHold = 3 * p.userLease // renewed
		}
		if rng.IntN(2) == 0 { // among themselves they meet what is seldom far more often
			p.clients = nil
		}
		for range 1 + rng.IntN(3) {
			p.clients = append(p.clients, clientPlan{lease: lease, maxWeight: 1, hold: 1, think: 1, detached: true, serves: true})
		}
	}
	if len(p.keys) > 0 {
		caps[0] = int(pick(0, 1, 1, 2, int64(p.limit)))
		p.caps = caps
		for i, c := range caps {
			if i == 0 || c > 0 {
				weights = min(weights, max(1, c))
			}
		}
		for i := range p.clients {
			p.clients[i].maxWeight = min(p.clients[i].maxWeight, weights)
			p.clients[i].callers *= int(pick(1, 2, 3))
		}
		p.userWeight = min(p.userWeight, weights)
	}
	if rng.IntN(3) == 0 {
		return p, rng
	}
	if len(p.keys) > 0 {
		p.rules = pick(0, 0, lease/2, 3*lease)
	}
	p.amounts = change * lease / 2
	rate := func() int { return int(maybe(3, pick(5, 30, 200))) }
	p.loseCall, p.loseReply, p.loseNews = rate(), rate(), rate()
	if p.users > 0 {
		p.breaks = int(pick(0, 3, 10))
	}
	p.lateCall, p.lateReply, p.lateNews, p.doubleNews = rate(), rate(), rate(), rate()
	mean := func() int64 { return maybe(4, pick(lease/2, 2*lease, 6*lease)) }
	p.pauses, p.crashes, p.cuts = mean(), mean(), mean()
	p.restarts, p.refusals = mean(), mean()
	p.limits, p.revokes, p.unsets = mean(), mean(), mean()
	p.drawReports(lease)
	p.stops, p.lostSubscriptions = maybe(8, lease), maybe(8, 2*lease)
	if seed%6 >= 4 { // half of these have rates
		p.cools = lease
	}
	p.forgets, p.steps = maybe(8, 3*lease), maybe(8, 2*lease)
	if p.watched {
		p.lostSubscriptions, p.steps = 0, 0
	} else if p.failovers = maybe(8, 2*lease); p.failovers > 0 {
		p.lag = rate()
		p.forgets, p.unsets, p.hurried = 0, 0, false
		for i := range p.clients {
			p.clients[i].hold = max(p.clients[i].hold, millisecond)
		}
	}
	if p.users == 0 && p.rules > 0 && rand.New(rand.NewPCG(seed, 0x616c6f6e)).IntN(4) == 0 {
		p.busyAlone(lease)
	}
	return p, rng
}

// busyAlone leaves one client, whose callers come all the time: only it may pass permits on for long, while rules change.
func (p *plan) busyAlone(lease int64) {
	p.clients, p.rules, p.limit, p.caps[0] = p.clients[:1], lease/2, 5, 5
	p.restarts, p.forgets, p.steps, p.failovers = 0, 0, 0, 0
	c := &p.clients[0]
	c.callers, c.hold, c.think, c.patience, c.try = max(12, c.callers), lease/50, 10, 0, 0
}

// drawKeys draws the keys of a plan, in two of three seeds, and the caps of those with two names or
// three. Three of four seeds with keys have such paths.
func drawKeys(seed uint64) (keys []engine.Key, caps engine.Caps) {
	rng := rand.New(rand.NewPCG(seed, 0x6b65))
	if rng.IntN(3) == 0 {
		return nil, caps
	}
	if rng.IntN(4) == 0 {
		keys = append(keys, "")
	}
	for i := range 1 + rng.IntN(6) {
		keys = append(keys, engine.Key(rune('a'+i)))
	}
	if rng.IntN(4) == 0 {
		return keys, caps
	}
	for i := range keys {
		if keys[i] != "" {
			keys[i] = engine.Key(drawPath(rng))
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys, engine.Caps{0, rng.IntN(4), rng.IntN(3)}
}

// drawPools draws the pools of a plan, in half of the seeds, and what callers take of them. Half of those plans change
// the amounts if they have faults.
func drawPools(seed uint64) (pools engine.Pools, takes []engine.Pools, change int64) {
	rng := rand.New(rand.NewPCG(seed, 0x706f6f6c))
	if rng.IntN(4) > 0 && seed%3 != 1 {
		return "", nil, 0
	}
	all, names := map[string]int{}, []string{"db", "gpu", "licence"}[:1+rng.IntN(3)]
	for _, name := range names {
		all[name] = 1 + rng.IntN(4)
	}
	for range 1 + rng.IntN(4) {
		some := map[string]int{}
		for _, name := range names {
			if rng.IntN(2) == 0 {
				some[name] = 1 + rng.IntN(all[name])
			}
		}
		takes = append(takes, newPools(some))
	}
	change = []int64{0, 0, 1, 6}[rng.IntN(4)]
	return drawRates(seed, newPools(all)), takes, change
}

// drawRates makes rates of some pools, in a third of the seeds; all of those have pools.
func drawRates(seed uint64, pools engine.Pools) engine.Pools {
	if seed%3 != 1 {
		return pools
	}
	rng, list := rand.New(rand.NewPCG(seed, 0x72617465)), []string(nil)
	for name, n := range pools.All() {
		text := engine.Amount{N: n}
		if rng.IntN(3) > 0 {
			text.Back, text.Per = 1+rng.IntN(6), []time.Duration{20, 100, 500, 3000}[rng.IntN(4)]*time.Millisecond
		}
		list = append(list, name+"="+text.String())
	}
	return engine.Pools(strings.Join(list, ","))
}

// newPools is the text of amounts that are in their range.
func newPools(amounts map[string]int) engine.Pools {
	pools, _ := engine.NewPools(amounts, 0)
	return pools
}

// drawPath draws a key of one to three names, mostly of more than one.
func drawPath(rng *rand.Rand) string {
	names := []string{string(rune('a' + rng.IntN(3)))}
	for range []int{0, 1, 1, 1, 2, 2}[rng.IntN(6)] {
		names = append(names, string(rune('a'+rng.IntN(3))))
	}
	return strings.Join(names, engine.KeySeparator)
}

// drawPriorities reports whether some callers of a seed have priority.
func drawPriorities(seed uint64) bool {
	return rand.New(rand.NewPCG(seed, 0x68656164)).IntN(8) == 0
}

// target draws whose permit somebody wants, the first key's more often than the others', and what that takes of pools.
func (w *world) target() (t protocol.Target) {
	if len(w.keys) > 0 {
		t.Key = w.keys[min(w.rng.IntN(len(w.keys)), w.rng.IntN(len(w.keys)+1))]
	}
	if len(w.takes) > 0 {
		t.Takes = w.takes[w.rng.IntN(len(w.takes))]
	}
	return t
}

// classes reports whether the semaphore has keys or pools, and so several queues.
func (w *world) classes() bool { return len(w.keys) > 0 || w.pools != "" }

// ruled draws a key that gets a rule: that of a caller, or one above it.
func (w *world) ruled() engine.Key {
	names := path(w.target().Key)
	if len(names) == 1 {
		return engine.Key(names[0])
	}
	return engine.Key(names[w.rng.IntN(len(names))])
}

// deep reports whether some keys have more than one name.
func (w *world) deep() bool {
	return slices.ContainsFunc(w.keys, func(key engine.Key) bool { return strings.Contains(string(key), engine.KeySeparator) })
}
