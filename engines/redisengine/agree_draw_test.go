package redisengine

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

func one(t *rapid.T, in int, what string) bool { return rapid.IntRange(1, in).Draw(t, what) == 1 }

func (j *judge) client(t *rapid.T) string { return rapid.SampledFrom(j.clients).Draw(t, "client") }

func (j *judge) id(t *rapid.T, client string) engine.ID {
	if len(j.known) > 0 && !one(t, 8, "new") {
		return rapid.SampledFrom(j.known).Draw(t, "id")
	}
	if one(t, 3, "another's") {
		client = j.client(t)
	}
	if one(t, 4, "a name") {
		client = rapid.SampledFrom([]string{api, api, mixed}).Draw(t, "name")
	}
	id := j.newID(client)
	if rapid.Bool().Draw(t, "special") {
		id.Slot, id.Weight = rapid.Bool().Draw(t, "slot"), rapid.IntRange(1, 12).Draw(t, "weight")
	}
	j.known = append(j.known, id)
	return id
}

// The first part of names. Under api all asks are of named permits.
const (
	api   = "api"
	mixed = "mixed"
)

// The caller that a named permit is for; nil of any other permit.
func (j *judge) who(t *rapid.T, id engine.ID) *engine.Client {
	if id.Client != api && (id.Client != mixed || one(t, 2, "of a session")) {
		return nil
	}
	who := describer(rapid.IntRange(0, 9).Draw(t, "who"))
	who.Caller, who.Lease = "job", time.Duration(who.PID)*time.Second
	return &who
}

func (j *judge) key(t *rapid.T) engine.Key {
	return engine.Key(rapid.SampledFrom(j.names).Draw(t, "key"))
}

// target is a key, and what is taken of pools.
func (j *judge) target(t *rapid.T) (g protocol.Target) {
	g.Key = j.key(t)
	if len(j.takes) == 0 || len(g.Key) > engine.MaxKey/2 {
		return g
	}
	g.Takes = rapid.SampledFrom(j.takes).Draw(t, "takes")
	return g
}

// named is target for an ask. One for a named permit mostly asks again for the same.
func (j *judge) named(t *rapid.T, r *protocol.Request) protocol.Target {
	if was, ok := j.asked[r.ID]; ok && r.Who != nil && !one(t, 6, "another key") {
		return was
	}
	j.asked[r.ID] = j.target(t)
	return j.asked[r.ID]
}

// pools are those of a semaphore.
func (j *judge) pools(t *rapid.T) engine.Pools {
	if len(j.takes) == 0 {
		return ""
	}
	return rapid.SampledFrom(j.there).Draw(t, "pools")
}

// caps are caps of keys, mostly of those with one name.
func (j *judge) caps(t *rapid.T, least, most int) (c engine.Caps) {
	c[0] = rapid.IntRange(least, most).Draw(t, "cap")
	for i := range c[1:] {
		if one(t, 3, "deeper") {
			c[i+1] = rapid.IntRange(least, most).Draw(t, "cap")
		}
	}
	return c
}

func (j *judge) newID(client string) engine.ID {
	j.number++
	return engine.ID{Client: client, Number: j.number, Weight: 1}
}

func (j *judge) limit(t *rapid.T) int {
	if j.crowded() && !one(t, 3, "few") {
		return rapid.IntRange(1, 300).Draw(t, "limit")
	}
	return rapid.IntRange(1, 6).Draw(t, "limit")
}

func (j *judge) request(t *rapid.T, client string) protocol.Request {
	kind := rapid.SampledFrom([]protocol.Kind{
		protocol.Ask, protocol.Ask, protocol.Ask, protocol.Ask, protocol.Ask, protocol.Ask, protocol.Renew, protocol.Renew,
		protocol.Release, protocol.Release, protocol.Release, protocol.Release, protocol.Revoke, protocol.SetLimit, protocol.UnsetLimit,
		protocol.Remove, protocol.Unpause,
	}).Draw(t, "kind")
	r := protocol.Request{Kind: kind, Limit: j.limit(t)}
	if kind == protocol.Unpause && one(t, 2, "pause") {
		r.Kind = protocol.Pause
	}
	if !aboutPermit(kind) && one(t, 3, "reports") {
		r.Kind, r.Limit, r.Totals = protocol.Report, 0, &protocol.Totals{}
		for _, n := range []*int64{&r.Totals.Good, &r.Totals.Bad, &r.Totals.Waited} {
			*n = rapid.Int64Range(-1, 1<<53).Draw(t, "total")
		}
		return r
	}
	if kind == protocol.Unpause && one(t, 3, "cools") {
		who := describer(rapid.IntRange(0, 9).Draw(t, "who"))
		return protocol.Request{Kind: protocol.Cooldown, Who: &who, Lease: time.Duration(rapid.Int64Range(-1, 700_000_000).Draw(t, "cooldown")) * time.Microsecond}
	}
	if kind == protocol.SetLimit && one(t, 2, "auto") {
		r.Auto = &engine.Auto{Min: 1, Max: rapid.IntRange(1, 1<<31-1).Draw(t, "max"), Bad: rapid.IntRange(0, 1000).Draw(t, "bad")}
		return r
	}
	if len(j.names) > 0 && !aboutPermit(kind) && one(t, 2, "rule") {
		r.Kind, r.Key = protocol.SetKey, j.key(t)
		r.Cap, r.Share = rapid.SampledFrom([]int{0, 1, 2, 3, 4, engine.MaxLimit}).Draw(t, "cap"), rapid.SampledFrom([]int{0, 1, 50, 100, 333, 1000}).Draw(t, "share")
		if one(t, 3, "unset") {
			r.Kind, r.Cap, r.Share = protocol.UnsetKey, 0, 0
		}
		r.Limit = 0
		return r
	}
	if !aboutPermit(kind) {
		r.Pin = one(t, 4, "pin")
		if len(j.names) > 0 && r.Kind == protocol.SetLimit {
			r.Caps = j.caps(t, -1, 4)
			if len(j.takes) > 0 {
				r.Pools = rapid.SampledFrom([]engine.Pools{"", "", "GPU=1", "GPU=3", "GPU=0", "GPU=2,db=4", "db=0,new=1", "db=3/2s", "new=2+5/11s"}).Draw(t, "changed pools")
			}
		}
		if r.Kind == protocol.SetLimit && one(t, 4, "as it is") {
			r.Limit = 0
		}
		r.Observe = r.Kind == protocol.SetLimit && one(t, 3, "observe")
		return r
	}
	r.ID = j.id(t, client)
	switch { // a permit that was revoked is released, most often
	case kind == protocol.Revoke:
		j.revoked, r.Wait = r.ID, one(t, 2, "a ticket")
	case kind == protocol.Release && j.revoked.Number != 0 && one(t, 4, "revoked"):
		r.ID = j.revoked
	}
	r.Lease = time.Duration(rapid.IntRange(1, 50).Draw(t, "lease")) * time.Millisecond
	if one(t, 100, "long") {
		r.Lease = time.Hour
	}
	r.Ticket = r.Lease / 2
	r.Mine = (kind == protocol.Release || kind == protocol.Renew) && one(t, 3, "mine")
	if kind == protocol.Ask {
		r.Who = j.who(t, r.ID)
		if len(j.names) > 0 {
			r.Target, r.Caps, r.Pools = j.named(t, &r), j.caps(t, 0, 3), j.pools(t)
		}
		r.Wait, r.Unfair, r.Strict, r.Newest = !one(t, 4, "try"), one(t, 6, "unfair"), one(t, 10, "strict"), one(t, 5, "newest")
		r.Detached, r.Observe = one(t, 10, "detached"), one(t, 20, "observes")
		if one(t, 2, "again") {
			r.Waited = time.Duration(rapid.IntRange(0, 80).Draw(t, "waited")) * 500 * time.Microsecond
		}
		r.Again, r.Anew = one(t, 3, "insists"), one(t, 6, "anew")
		if one(t, 4, "more wait") {
			r.Behind = rapid.IntRange(0, 100_000).Draw(t, "behind")
		}
	}
	if kind == protocol.Release && len(j.takes) > 0 && one(t, 2, "used") {
		r.Pools = rapid.SampledFrom([]engine.Pools{"db=0", "db=1", "db=2", "db=9", "GPU=0", "GPU=1,db=0", "new=1"}).Draw(t, "used")
	}
	if (kind == protocol.Renew || kind == protocol.Release) && one(t, 3, "passed on") {
		r.Token = j.now + int64(rapid.IntRange(-30_000, 30_000).Draw(t, "token"))
		if g, _, ok := j.ledger.Permit(j.now, r.ID); ok && one(t, 2, "its token") {
			r.Token = g.Token
		}
	}
	return r
}

// keep is the Keep of a call.
func keep(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(1, 60).Draw(t, "keep")) * time.Millisecond
}

func (j *judge) next() protocol.Call {
	j.calls++
	return protocol.Call{Number: j.calls}
}

// quick sends a call that the fast path can often carry out: its one request is about a permit of the caller's, or for a
// new one.
func (j *judge) quick(t *rapid.T, client string, c protocol.Call) {
	var held []engine.ID
	j.ledger.Holders(func(id engine.ID, _ string, _ bool) { held = append(held, id) })
	r := protocol.Request{Kind: protocol.Ask, Lease: time.Duration(rapid.IntRange(1, 4).Draw(t, "lease s")) * time.Second, Limit: 12}
	if len(held) > 0 && rapid.Bool().Draw(t, "held") {
		r.Kind = rapid.SampledFrom([]protocol.Kind{protocol.Renew, protocol.Release, protocol.Release, protocol.Revoke}).Draw(t, "kind")
		if r.ID = rapid.SampledFrom(held).Draw(t, "id"); j.ledger.Revoked(r.ID) {
			r.Kind = protocol.Release
		}
		if r.Kind == protocol.Release && len(j.takes) > 0 && one(t, 4, "used") {
			r.Pools = rapid.SampledFrom([]engine.Pools{"db=0", "GPU=0"}).Draw(t, "settles")
		}
		if j.place(r.ID.Client) >= 0 {
			client = r.ID.Client
		}
	} else {
		r.ID, r.Key, r.Caps, r.Pools = j.newID(client), j.key(t), j.caps(t, 0, 3), j.pools(t)
		if one(t, 2, "takes some") {
			r.Target = j.target(t)
		}
		r.ID.Weight, r.Ticket, r.Wait = rapid.IntRange(1, 2).Draw(t, "weight"), r.Lease/2, one(t, 8, "wait")
		j.known = append(j.known, r.ID)
	}
	c.Requests = []protocol.Request{r}
	j.step(client, c)
}

// both sends one call to both sides.
func (j *judge) both(t *rapid.T) {
	client, c := j.client(t), j.next()
	if j.calm && !one(t, 12, "storm") {
		j.quick(t, client, c)
		return
	}
	c.Fence = one(t, 20, "fence")
	if one(t, 20, "late") {
		c.Number -= uint64(rapid.IntRange(0, int(j.calls-1)).Draw(t, "by"))
	}
	for range rapid.IntRange(1, 5).Draw(t, "requests") {
		r := j.request(t, client)
		c.Requests = append(c.Requests, r)
		if one(t, 4, "run") && aboutPermit(r.Kind) { // several in one run
			for range rapid.IntRange(1, 4).Draw(t, "more") {
				r.ID.Number = j.id(t, client).Number
				if r.Who != nil {
					r.Who = j.who(t, r.ID)
					if len(j.names) > 0 {
						r.Target, r.Caps, r.Pools = j.named(t, &r), j.caps(t, 0, 3), j.pools(t)
					}
				}
				c.Requests = append(c.Requests, r)
			}
		}
	}
	if one(t, 2, "keeps") {
		c.Keep = keep(t)
	}
	if !one(t, 6, "deaf") { // most callers can be notified
		j.lives(client)
	}
	j.step(client, c)
}

// all makes the same call for many clients, one after the other.
func (j *judge) all(t *rapid.T) {
	j.sync(t) // otherwise the pipeline would get long
	r := protocol.Request{
		Kind:  rapid.SampledFrom([]protocol.Kind{protocol.Ask, protocol.Ask, protocol.Ask, protocol.Renew, protocol.Release}).Draw(t, "kind of all"),
		Limit: j.limit(t), Lease: time.Duration(rapid.IntRange(1, 50).Draw(t, "lease")) * time.Millisecond, Wait: !one(t, 4, "try"),
	}
	r.Ticket = r.Lease
	if len(j.names) > 0 {
		r.Caps, r.Pools = j.caps(t, 0, 3), j.pools(t)
	}
	j.each(j.clients[:rapid.IntRange(1, len(j.clients)).Draw(t, "all")], r, keep(t))
}

// each makes the same request for clients, each with a permit of its own.
func (j *judge) each(clients []string, r protocol.Request, keep time.Duration) {
	for _, client := range clients {
		if r.Kind == protocol.Ask {
			j.last[client] = j.newID(client)
			j.known = append(j.known, j.last[client])
			if len(j.names) > 0 {
				r.Key = engine.Key(j.names[len(j.known)%len(j.names)])
				if len(j.takes) > 0 {
					r.Takes = j.takes[len(j.known)%len(j.takes)]
				}
			}
		}
		if r.ID = j.last[client]; r.ID.Client == "" {
			continue // the client never asked
		}
		c := j.next()
		c.Requests, c.Keep = []protocol.Request{r}, keep
		j.step(client, c)
	}
}

// open sets a limit for many clients, and caps of their keys.
func (j *judge) open(t *rapid.T) {
	c := j.next()
	c.Requests = []protocol.Request{{Kind: protocol.SetLimit, Limit: 300}, {Kind: protocol.Unpause}}
	if len(j.names) > 0 {
		c.Requests[0].Caps = j.caps(t, -1, 4)
	}
	j.step(j.client(t), c)
}

// time moves the clock, mostly to the ends of leases and tickets, sometimes
// past the end of all.
func (j *judge) time(t *rapid.T) {
	if !one(t, 12, "much later") {
		after := time.Duration(rapid.IntRange(1, 60).Draw(t, "half ms")) * time.Millisecond / 2
		if later := j.now + after.Microseconds(); j.ledger.Outlasts(later) || !j.ledger.Outlasts(j.now) {
			j.now = later
		} else { // the keys expire
			j.passApart(t, after)
		}
		return
	}
	most := rapid.SampledFrom([]int{30, 600, 5 * 3600}).Draw(t, "at most")
	j.passApart(t, time.Duration(rapid.IntRange(1, most).Draw(t, "s"))*time.Second)
}

// passApart moves the clock so far that keys may expire, and further if their expiry would be ambiguous.
func (j *judge) passApart(t *rapid.T, after time.Duration) {
	for !j.apart(after) {
		after += 10 * time.Second
	}
	j.pass(t, after)
}

// pass moves the clock so far that keys may expire.
func (j *judge) pass(t failer, after time.Duration) {
	j.sync(t)
	saved := j.ledger.Save()
	j.now += after.Microseconds()
	j.rdb.Set(context.Background(), "now", j.now, 0)
	if err := j.rdb.EvalSha(context.Background(), j.bench.pass, nil).Err(); err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	if saved.Limit > 0 && ledger.Load(saved).Over(j.now) {
		j.forgotten.Add(1)
	}
}

// apart reports whether the keys' expiry is unambiguous after such a time: it is in whole milliseconds.
func (j *judge) apart(after time.Duration) bool {
	now := j.now + after.Microseconds()
	near := func(end int64) bool { return now-2_000 < end && end < now+2_000 }
	all := j.ledger.Save()
	if near(all.Keep) || near(all.Auto.End) {
		return false
	}
	for _, r := range all.Reports {
		if near(r.End) {
			return false
		}
	}
	for _, f := range j.fences {
		if near(f.end) {
			return false
		}
	}
	return true
}
