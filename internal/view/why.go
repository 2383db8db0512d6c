package view

import (
	"fmt"
	"slices"
	"strings"

	"sema/engine"
)

// Served is what Why says if nothing is in front.
const Served = "served now"

// Why says in a few words what stands in front of a permit: of a weight, for a key ("" is no key),
// with so many tickets of that key before it. The obstacle at the last name of the key comes first.
func Why(st engine.State, key engine.Key, weight, before int) string {
	return why(st, Path(st, key), weight, before)
}

// why says it for the keys of a path, from the last name on.
func why(st engine.State, path []engine.KeyState, weight, before int) string {
	last, free := path[0], max(0, st.Limit-st.Used)
	room := fmt.Sprintf("%d of %d free", free, st.Limit)
	next := "next in line"
	if len(st.Keys) > 0 {
		next = called(last.Key) + " is next"
	}
	var obstacles []string
	if before > 0 {
		obstacles = append(obstacles, "behind "+others(before, last.Key))
	}
	most, whose := st.Limit, fmt.Sprintf("the limit %d", st.Limit)
	for i, k := range path {
		if k.Cap > 0 && k.Cap < most {
			most, whose = k.Cap, fmt.Sprintf("the %d that %s may hold", k.Cap, called(k.Key))
		}
		switch {
		case k.Full, k.Cap > 0 && k.Held+weight > k.Cap: // an engine does not call a key full if all below it are at caps
			text := fmt.Sprintf("%s holds %d of its %d", called(k.Key), k.Held, k.Cap)
			if i > 0 && k.Held < k.Cap && first(st, k.Key) > 1 {
				text += fmt.Sprintf(", and its first waiter wants %d", first(st, k.Key))
			}
			obstacles = append(obstacles, text)
		case k.Before > 0:
			obstacles = append(obstacles, goBefore(k))
		}
	}
	switch {
	case weight > most:
		return fmt.Sprintf("never: weight %d is above %s", weight, whose)
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
	return Served
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

// Before is how many tickets of its key are before the ticket of that index in the queue.
func Before(st engine.State, index int) (n int) {
	for _, w := range st.Waiters[:index] {
		if w.Key == st.Waiters[index].Key {
			n++
		}
	}
	return n
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

func others(n int, key engine.Key) string {
	text := "1 other"
	if n != 1 {
		text = fmt.Sprintf("%d others", n)
	}
	if key != "" {
		text += " of " + Title(key)
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
