package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sema/engine"
)

// Served is what Why says if nothing is in front.
const Served = "served now"

// Why says in a few words what stands in front of a permit: of a weight, for a key ("" is no key), which takes
// some of pools, with so many tickets of that key and those pools before it. The obstacle at the last name of the
// key comes first, pools come last.
func Why(st engine.State, key engine.Key, takes engine.Pools, weight, before int) string {
	lanes, keep := Lanes(st)
	return why(st, inLanes(Path(st, key), lanes, takes), keep, takes, weight, before)
}

// why says it for the keys of a path, from the last name on, beside those that keep something free.
func why(st engine.State, path []engine.KeyState, keep []engine.Waiter, takes engine.Pools, weight, before int) string {
	last, free := path[0], max(0, st.Limit-st.Used)
	room := fmt.Sprintf("%d of %d free", free, st.Limit)
	next := "next in line"
	if Keyed(st) {
		next = called(last.Key) + " is next"
	}
	var obstacles []string
	if before > 0 {
		obstacles = append(obstacles, "behind "+others(before, last.Key, takes))
	}
	most, whose := st.Limit, fmt.Sprintf("the limit %d", st.Limit)
	for i, k := range path {
		if k.Cap > 0 && k.Cap < most {
			most, whose = k.Cap, fmt.Sprintf("the %d that %s may hold", k.Cap, called(k.Key))
		}
		switch {
		case atCap(k, weight):
			text := fmt.Sprintf("%s holds %d of its %d", called(k.Key), k.Held, k.Cap)
			if i > 0 && k.Held < k.Cap && first(st, k.Key) > 1 {
				text += fmt.Sprintf(", and its first waiter wants %d", first(st, k.Key))
			}
			obstacles = append(obstacles, text)
		case k.Before > 0:
			obstacles = append(obstacles, goBefore(k))
		}
	}
	isFirst := before == 0 && !slices.ContainsFunc(path, func(k engine.KeyState) bool { return k.Before > 0 }) // of its pools
	keep = slices.DeleteFunc(slices.Clone(keep), func(w engine.Waiter) bool {                                  // it is the permit itself, or served later
		if w.Takes.Names() == takes.Names() {
			return isFirst
		}
		return shares(KeyOf(st, w.Key.First(1))) > shares(path[len(path)-1])
	})
	inPools, never := atPools(st, keep, takes)
	switch obstacles = append(obstacles, inPools...); {
	case weight > most:
		return fmt.Sprintf("never: weight %d is above %s", weight, whose)
	case never != "":
		return never
	case st.Paused:
		return "paused by an operator"
	case before == 0 && last.Waiting > 0 && !last.Full && !last.InTurn:
		return strings.Join(append([]string{"all that wait below it are at their caps"}, obstacles...), "; ")
	case before > 0 && len(obstacles) == 1 && free > 0 && first(st, last.Key) > free:
		return fmt.Sprintf("%s; the first wants %d, %s", obstacles[0], first(st, last.Key), room)
	case len(obstacles) > 0:
		return strings.Join(obstacles, "; ")
	case st.Used > st.Limit:
		return fmt.Sprintf("%s; %d held, more than the limit %d", next, st.Used, st.Limit)
	case weight > free && free > 0:
		return fmt.Sprintf("%s; wants %d, %s", next, weight, room)
	case weight > free:
		return next + "; " + room
	}
	for _, k := range path {
		below := func(w engine.Waiter) int {
			if in(w.Key, k.Key) {
				return w.Weight
			}
			return 0
		}
		if by := reserved(keep, k.Cap-k.Held-weight, below, true); k.Cap > 0 && by != "" {
			return fmt.Sprintf("%s holds %d of its %d; the rest is %s", called(k.Key), k.Held, k.Cap, by)
		}
	}
	if by := reserved(keep, free-weight, func(w engine.Waiter) int { return w.Weight }, true); by != "" {
		return room + "; the rest is " + by
	}
	return Served
}

// reserved names the waiter that keeps more than left free for itself, or says how many do so together; "" if they
// leave enough. of is how much a waiter keeps. pools adds what it takes of pools.
func reserved(keep []engine.Waiter, left int, of func(engine.Waiter) int, pools bool) string {
	sum, several := 0, 0
	for _, w := range keep {
		n := of(w)
		if n > left {
			text := fmt.Sprintf("reserved for %s, who wants %d", owner(w.Key), n)
			if pools && w.Takes != "" {
				text += ", and " + poolsOf(w.Takes)
			}
			return text
		}
		sum, several = sum+n, several+min(n, 1)
	}
	if sum > left {
		return fmt.Sprintf("reserved for %d others", several)
	}
	return ""
}

// Keyed reports whether anything tells keys apart. In a semaphore with pools callers without a key are a key, "".
func Keyed(st engine.State) bool {
	return st.Caps != (engine.Caps{}) || slices.ContainsFunc(st.Keys, func(k engine.KeyState) bool { return k.Key != "" })
}

// PoolOf is a pool of a semaphore; ok is false if it has none of that name.
func PoolOf(st engine.State, name string) (p engine.PoolState, ok bool) {
	i := slices.IndexFunc(st.Pools, func(p engine.PoolState) bool { return p.Pool == name })
	if i < 0 || st.Pools[i].Limit == 0 {
		return engine.PoolState{Pool: name}, false
	}
	return st.Pools[i], true
}

// atPools says what stands in front of a permit at the pools that it takes some of. never is why it cannot be had.
func atPools(st engine.State, keep []engine.Waiter, takes engine.Pools) (obstacles []string, never string) {
	for name, n := range takes.All() {
		p, ok := PoolOf(st, name)
		free := max(0, p.Limit-p.Used)
		by := reserved(keep, free-n, func(w engine.Waiter) int { return w.Takes.Of(name) }, false)
		switch {
		case !ok:
			return nil, "never: there is no pool " + name
		case n > p.Limit:
			return nil, fmt.Sprintf("never: %d of %s are above the %d that there are", n, name, p.Limit)
		case n > free:
			obstacles = append(obstacles, fmt.Sprintf("%d of %s wanted, %d of %d free", n, name, free, p.Limit))
		case by != "":
			obstacles = append(obstacles, fmt.Sprintf("%s: %d free, %s", name, free, by))
		}
	}
	return obstacles, ""
}

// Lane is who waits for a key, or below it, and takes some of the same pools, which Set names.
type Lane struct {
	Key engine.Key
	Set string
}

// Lanes counts, for each lane of a semaphore with pools, the lanes beside it of the same pools that are served before
// it. Each waiter of keep may have a reservation: it is the first of its set of pools that no cap holds up.
func Lanes(st engine.State) (lanes map[Lane]int, keep []engine.Waiter) {
	if len(st.Pools) == 0 {
		return nil, nil
	}
	states, below, kept := map[engine.Key]engine.KeyState{}, map[Lane]int{}, map[string]bool{}
	for _, k := range st.Keys {
		states[k.Key] = k
	}
	lanes = map[Lane]int{}
	for _, w := range st.Waiters {
		leaf, set, held := w.Key, w.Takes.Names(), false
		if leaf != "" {
			leaf += engine.KeySeparator
		}
		for _, k := range above(leaf) {
			held = held || atCap(states[k], w.Weight)
			if _, ok := lanes[Lane{k, set}]; !ok {
				lanes[Lane{k, set}] = below[Lane{k.Above(), set}]
				below[Lane{k.Above(), set}]++
			}
		}
		if !held && !kept[set] {
			keep, kept[set] = append(keep, w), true
		}
	}
	return lanes, keep
}

// inLanes is a path as those see it that take some of the same pools: how many lanes are before theirs.
func inLanes(path []engine.KeyState, lanes map[Lane]int, takes engine.Pools) []engine.KeyState {
	for i := range path {
		if n, ok := lanes[Lane{path[i].Key, takes.Names()}]; ok {
			path[i].Before = n
		}
	}
	return path
}

// HeldFor is the weight that counts for a key in the order among callers of the same pools: of the weights that
// it holds with each of the pools, the largest. Without pools it is all that the key holds.
func HeldFor(st engine.State, k engine.KeyState, takes engine.Pools) (most int) {
	if takes == "" {
		return k.Held
	}
	for name := range takes.All() {
		held := 0
		for _, h := range st.Holders {
			if h.Takes.Of(name) > 0 && in(h.Key, k.Key) {
				held += h.Weight
			}
		}
		most = max(most, held)
	}
	return most
}

// shares is how many whole shares a key holds.
func shares(k engine.KeyState) int {
	return k.Held * engine.DefaultShare / cmp.Or(k.Share, engine.DefaultShare)
}

// atCap reports whether a key holds up a weight. An engine does not call a key full if all below it are at their caps.
func atCap(k engine.KeyState, weight int) bool {
	return k.Full || k.Cap > 0 && k.Held+weight > k.Cap
}

// Path is what callers of a key of a semaphore wait for, from the last name on: the key and those above it. Callers
// of a key that others are in use below have a queue of their own there, which comes first.
func Path(st engine.State, key engine.Key) (list []engine.KeyState) {
	if key != "" && slices.ContainsFunc(st.Keys, func(k engine.KeyState) bool { return k.Key.Above() == key && k.Held+k.Waiting > 0 }) {
		key += engine.KeySeparator
	}
	for _, k := range above(key) {
		list = append(list, KeyOf(st, k))
	}
	return list
}

// KeyOf is a key of a semaphore; of one that nobody uses, what it would be.
func KeyOf(st engine.State, key engine.Key) engine.KeyState {
	if i := slices.IndexFunc(st.Keys, func(k engine.KeyState) bool { return k.Key == key }); i >= 0 {
		return st.Keys[i]
	}
	return engine.KeyState{Key: key, Cap: CapOf(st.Caps, key), Share: engine.DefaultShare}
}

// CapOf is the cap of a key without a rule; 0: none.
func CapOf(caps engine.Caps, key engine.Key) int {
	if key == "" || key.Own() {
		return 0
	}
	return caps[key.Level()-1]
}

// above is a key and those above it, from the last name on.
func above(key engine.Key) []engine.Key {
	list := []engine.Key{key}
	for key = key.Above(); key != ""; key = key.Above() {
		list = append(list, key)
	}
	return list
}

// Before is how many tickets of its key, and of the same pools, are before the ticket of that index in the queue.
func Before(st engine.State, index int) (n int) {
	for _, w := range st.Waiters[:index] {
		if Beside(w, st.Waiters[index]) {
			n++
		}
	}
	return n
}

// Beside reports whether two wait in one queue: for the same key, and for some of the same pools.
func Beside(w, other engine.Waiter) bool {
	return w.Key == other.Key && (w.Takes == other.Takes || w.Takes.Names() == other.Takes.Names())
}

// owner names, in a sentence, the waiter with a reservation.
func owner(key engine.Key) string {
	if key == "" {
		return "a caller"
	}
	return key.String()
}

// poolsOf is amounts of pools in words: "1 of gpu and 2 of licence".
func poolsOf(takes engine.Pools) string {
	var words []string
	for name, n := range takes.All() {
		words = append(words, fmt.Sprintf("%d of %s", n, name))
	}
	return strings.Join(words, " and ")
}

// called names a key in a sentence.
func called(key engine.Key) string {
	switch {
	case key == "":
		return "the caller without a key"
	case key.Own():
		return "the caller of " + Title(key)
	}
	return key.String()
}

// goBefore says how many keys are served before one that is not at its cap. Its parent is named where
// they share one.
func goBefore(k engine.KeyState) string {
	format, of := "%d keys%s go before %s", ""
	if k.Before == 1 {
		format = "%d key%s goes before %s"
	}
	if above := k.Key.Above(); above != "" {
		of = " of " + above.String()
	}
	return fmt.Sprintf(format, k.Before, of, called(k.Key))
}

func others(n int, key engine.Key, takes engine.Pools) string {
	text := "1 other"
	if n != 1 {
		text = fmt.Sprintf("%d others", n)
	}
	if key != "" {
		text += " of " + Title(key)
	}
	if takes != "" {
		text += " for " + strings.ReplaceAll(takes.Names(), ",", " and ")
	}
	return text
}

// first is the weight of the first ticket of a key, or of one below it.
func first(st engine.State, key engine.Key) int {
	if i := slices.IndexFunc(st.Waiters, func(w engine.Waiter) bool { return in(w.Key, key) }); i >= 0 {
		return st.Waiters[i].Weight
	}
	return 0
}

// in reports whether callers of one key count for another: for the same, for each above it, and for their own queue.
func in(callers, key engine.Key) bool {
	const end = engine.KeySeparator
	return strings.HasPrefix(string(callers)+end+end, string(key)+end)
}
