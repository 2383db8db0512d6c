// Package view describes semaphores to programs and to people: in one JSON, and in the same
// words, for the command, the server and the dashboard. Times in JSON are seconds, with
// fractions. Fields may be added; none changes its meaning.
package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sema/access"
	"sema/engine"
	"sema/watch"
)

// Summary is a semaphore in a list.
type Summary struct {
	Name     string           `json:"name"`
	Limit    int              `json:"limit"`
	Pinned   bool             `json:"pinned"` // an operator set the limit; it is kept when idle
	Paused   bool             `json:"paused"` // nobody is granted a permit
	Used     int              `json:"used"`   // weight
	Free     int              `json:"free"`   // weight
	Holding  int              `json:"holding"`
	Waiting  int              `json:"waiting"`            // callers
	Oldest   float64          `json:"oldest_seconds"`     // the longest wait
	Cooldown *Cooldown        `json:"cooldown,omitempty"` // nobody is granted a permit before; nil: there is none
	Observed *engine.Observed `json:"observed,omitempty"` // nil: the limit is enforced; else it is only watched
	Error    string           `json:"error,omitempty"`    // the last look failed; the rest may be old, or 0
}

// State is a semaphore with its holders and waiters.
type State struct {
	Summary
	Holders  []Holder    `json:"holders"`            // the one that got its permit first comes first
	Waiters  []Waiter    `json:"waiters"`            // in the order they will be served; with keys, key by key
	Caps     []int       `json:"caps"`               // the most that a key without a rule may hold, by how many names it has; 0: no such cap
	Pools    []PoolState `json:"pools"`              // by name
	Keys     []Key       `json:"keys"`               // as engine.State.Keys has them, in its order; none without keys
	Adapting *Adapting   `json:"adapting,omitempty"` // nil: nobody finds the limit

	MoreHolders int `json:"more_holders,omitempty"` // so many are left out
	MoreWaiters int `json:"more_waiters,omitempty"` // tickets
}

// PoolState is a pool. A rate comes back with time.
type PoolState struct {
	Pool    string `json:"pool"`
	Limit   int    `json:"limit"`
	Used    int    `json:"used"`
	Waiting int    `json:"waiting"` // tickets that want some of it

	Rate string  `json:"rate,omitempty"`         // "500/1m", "20000+200000/1m"; "": it is none
	Next float64 `json:"next_seconds,omitempty"` // until one more of the rate can be taken; 0: all are there
}

// Pools are those of a snapshot; never nil.
func Pools(list []engine.PoolState) []PoolState {
	all := []PoolState{}
	for _, p := range list {
		is := PoolState{Pool: p.Pool, Limit: p.Limit, Used: p.Used, Waiting: p.Waiting, Next: p.Next.Seconds()}
		if p.Per > 0 {
			is.Rate = p.Amount().String()
		}
		all = append(all, is)
	}
	return all
}

// Cooldown stops all grants for a while.
type Cooldown struct {
	Left float64 `json:"left_seconds"`
	By   string  `json:"by"` // who said so last
}

// Says is who a client is, in a sentence.
func Says(c engine.Client) string {
	switch {
	case c.Label == "" && c.Host == "":
		return "a caller"
	case c.Label == "":
		return "a caller on " + c.Host
	case c.Host == "":
		return c.Label
	}
	return c.Label + " on " + c.Host
}

// Adapting is how a limit is found.
type Adapting struct {
	Min int     `json:"min"`
	Max int     `json:"max"`
	Bad float64 `json:"bad"` // the part of the time held that went badly in the last window, 0 … 1
}

// Key is one of the keys that share a semaphore, with all below it. A list of names whose last is "" is
// the callers of a key itself, beside those below it.
type Key struct {
	Key     engine.Key `json:"key"`
	Held    int        `json:"held"`    // weight
	Waiting int        `json:"waiting"` // callers
	Oldest  float64    `json:"oldest_seconds"`
	Cap     int        `json:"cap"` // the most that it may hold; 0: the limit alone
	Share   int        `json:"share"`
	Ruled   bool       `json:"ruled"`  // an operator, or a program, gave it a cap or a share of its own
	Full    bool       `json:"full"`   // it waits for what it holds itself
	Before  int        `json:"before"` // of the keys beside it, so many are served before it
	Why     string     `json:"why"`    // what its first waiter waits for; "" if nobody waits, or Explain was not asked
	first   engine.Waiter
}

// Holder is a client with a permit.
type Holder struct {
	Permit    string       `json:"permit"`
	Key       engine.Key   `json:"key"`   // whose it is; "": nobody's
	Takes     engine.Pools `json:"takes"` // of pools
	Weight    int          `json:"weight"`
	Slot      *int         `json:"slot"`        // nil: none
	Token     *int64       `json:"token"`       // nil: not recorded
	Age       *float64     `json:"age_seconds"` // nil: not recorded
	Left      float64      `json:"lease_left_seconds"`
	Revoked   bool         `json:"revoked"`
	WouldWait bool         `json:"would_wait,omitempty"` // if the limit were not only watched
	Client
}

// Client is the program that holds or waits.
type Client struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Label   string `json:"label"`
	Version string `json:"version"` // of sema; "": it does not say
	Caller  string `json:"caller"`  // what the caller calls the permit; "": nothing
}

func clientOf(c engine.Client) Client { return Client{c.Host, c.PID, c.Label, c.Version, c.Caller} }

// Waiter is a client with a ticket.
type Waiter struct {
	Position int          `json:"position"` // from 1, among those of its key that take the same pools
	Permit   string       `json:"permit"`   // the one it would get
	Key      engine.Key   `json:"key"`
	Takes    engine.Pools `json:"takes"` // of pools
	Weight   int          `json:"weight"`
	Waiting  float64      `json:"waiting_seconds"`
	Behind   int          `json:"behind"` // so many more callers wait in its process
	Client
}

// Summarize is what a look found. The error's text is the caller's to say.
func Summarize(s watch.Summary) Summary {
	sum := Summary{
		Name: s.Name, Limit: s.Limit, Pinned: s.Pinned, Paused: s.Paused, Used: s.Used, Free: max(0, s.Limit-s.Used),
		Holding: s.Holders, Waiting: s.Waiting, Oldest: s.Oldest.Seconds(), Observed: s.Observed,
	}
	if c := s.Cooldown; c != nil {
		sum.Cooldown = &Cooldown{c.Left.Seconds(), Says(c.By)}
	}
	return sum
}

// Of is a snapshot.
func Of(name string, st engine.State) State {
	look := LookAt(st)
	v := State{Summary: Summarize(watch.Summarize(name, time.Time{}, st)), Holders: []Holder{}, Waiters: []Waiter{}, Caps: st.Caps.List(), Pools: Pools(st.Pools), Keys: look.Rows()}
	look.Explain(v.Keys)
	if a := st.Auto; a != nil {
		v.Adapting = &Adapting{a.Min, a.Max, float64(a.Bad) / 1000}
	}
	for _, h := range ByToken(st.Holders) {
		one := Holder{Permit: h.ID, Key: h.Key, Takes: h.Takes, Weight: h.Weight, Left: h.Left.Seconds(), Revoked: h.Revoked, WouldWait: h.WouldWait, Client: clientOf(h.Client)}
		if h.Slot >= 0 {
			one.Slot = &h.Slot
		}
		if h.Token != 0 {
			age := h.Age.Seconds()
			one.Token, one.Age = &h.Token, &age
		}
		v.Holders = append(v.Holders, one)
	}
	for i, w := range st.Waiters {
		v.Waiters = append(v.Waiters, Waiter{
			Position: look.Before[i] + 1, Permit: w.ID, Key: w.Key, Takes: w.Takes, Weight: w.Weight, Waiting: w.Waiting.Seconds(), Behind: w.Behind, Client: clientOf(w.Client),
		})
	}
	return v
}

// Rows are the keys of a snapshot, in its order, without reasons.
func (l Look) Rows() []Key {
	if !Keyed(l.State) {
		return []Key{}
	}
	list, at := make([]Key, len(l.Keys)), make(map[engine.Key]int, len(l.Keys))
	for i, k := range l.Keys {
		list[i] = Key{Key: k.Key, Held: k.Held, Cap: k.Cap, Share: k.Share, Ruled: k.Ruled, Full: k.Full, Before: k.Before}
		at[k.Key] = i
	}
	for _, w := range l.Waiters {
		for _, key := range Path(w.Key) {
			if i, ok := at[key]; ok {
				if list[i].Waiting == 0 {
					list[i].first = w
				}
				list[i].Waiting += 1 + w.Behind
				list[i].Oldest = max(list[i].Oldest, w.Waiting.Seconds())
			}
		}
	}
	return list
}

// mostExplained is for how many keys reasons are found. With pools each takes milliseconds.
const mostExplained = 100

// Explain says what the first waiters of keys wait for, of so many keys at the most.
func (l Look) Explain(list []Key) {
	n := 0
	for i, k := range list {
		if k.Waiting > 0 && n < mostExplained {
			list[i].Why = l.Why(k.first)
			n++
		}
	}
}

// Before adds to the record of an operation what it changes, as it is now: values, or whose permit it is.
func Before(a access.Record, st engine.State) access.Record {
	switch a.What {
	case "limit", "unset-limit":
		amounts := map[string]int{}
		for _, p := range st.Pools {
			amounts[p.Pool] = p.Limit
		}
		pools, _ := engine.NewPools(amounts, 0)
		a.Was = &access.Rule{Limit: st.Limit, Caps: st.Caps.List(), Pools: pools}
	case "set-key", "unset-key":
		k := LookAt(st).Key(a.Key)
		a.Was = &access.Rule{Cap: k.Cap, Share: k.Share}
	case "revoke", "release":
		for _, h := range st.Holders {
			if h.ID == a.Permit {
				a.Caller, a.Key = h.Client.Caller, h.Key
			}
		}
	}
	if st.Limit == 0 {
		a.Was = nil
	}
	return a
}

// ByToken returns the holders in the order of their grants. Engines list them
// in no order. holders stays unchanged, because others may read the same
// snapshot.
func ByToken(holders []engine.Holder) []engine.Holder {
	sorted := slices.Clone(holders)
	slices.SortFunc(sorted, func(a, b engine.Holder) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
	})
	return sorted
}

// Tree sorts keys: those with the most waiters first, then those that hold the most, each followed by those
// below it. A key above others that has no row gets one; caps are those of keys without a rule.
func Tree(keys []Key, caps engine.Caps) []Key {
	below, known := map[engine.Key][]Key{}, map[engine.Key]bool{"": true}
	for _, k := range keys {
		known[k.Key] = true
	}
	var put func(Key)
	var add func(above engine.Key)
	put = func(k Key) {
		above := k.Key.Above()
		if below[above] = append(below[above], k); !known[above] {
			known[above] = true
			put(Key{Key: above, Cap: CapOf(caps, above), Share: engine.DefaultShare})
		}
	}
	for _, k := range keys {
		put(k)
	}
	sorted := make([]Key, 0, len(keys))
	add = func(above engine.Key) {
		slices.SortFunc(below[above], func(a, b Key) int {
			return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Held, a.Held), cmp.Compare(a.Key, b.Key))
		})
		for _, k := range below[above] {
			if sorted = append(sorted, k); k.Key != "" {
				add(k.Key)
			}
		}
	}
	add("")
	return sorted
}

// Title is a key as the heading of its row: the names with slashes between, "acme itself" for its own
// callers beside those below it, and "(none)" for the callers without a key.
func Title(key engine.Key) string {
	switch {
	case key == "":
		return "(none)"
	case key.Own():
		return key.Above().String() + " itself"
	}
	return key.String()
}

// ParseCaps reads caps as engine.Caps.String prints them: by how many names a key has, with commas
// between, and "-" or 0 where there is none. The error is an *engine.ArgumentError.
func ParseCaps(text string) (caps engine.Caps, err error) {
	wrong := &engine.ArgumentError{What: "caps", Value: text, Want: fmt.Sprintf("1 to %d numbers of 0 … %d with commas between, for keys of one name, of two, of three; - is no cap", engine.MaxDepth, engine.MaxLimit)}
	words := strings.Split(text, ",")
	for i, word := range words[:min(len(words), len(caps))] {
		if word = strings.TrimSpace(word); word != "-" {
			caps[i], err = strconv.Atoi(word)
		}
		if err != nil || len(words) > len(caps) || caps.Validate() != nil {
			return engine.Caps{}, wrong
		}
	}
	return caps, nil
}

// CapsText is caps as ParseCaps reads them: "-" without any.
func CapsText(caps engine.Caps) string {
	if caps == (engine.Caps{}) {
		return "-"
	}
	return caps.String()
}
