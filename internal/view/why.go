package view

import (
	"fmt"
	"strings"

	"sema/engine"
	"sema/internal/tree"
)

// Why says in a few words what stands in front of a permit: of a weight, for a key ("" is no key),
// with so many tickets of that key before it. The obstacle at the last name of the key comes first.
func Why(st engine.State, key engine.Key, weight, before int) string {
	of := func(key engine.Key) engine.KeyState {
		for _, k := range st.Keys {
			if k.Key == key {
				return k
			}
		}
		return engine.KeyState{Key: key}
	}
	list := path(key, of)
	if own := of(key + engine.KeySeparator); key != "" && own.Share > 0 { // its callers queue beside others below it
		list = append([]engine.KeyState{own}, list...)
	}
	return why(st, list, weight, before)
}

// why says it for the keys of a path, from the last name on.
func why(st engine.State, path []engine.KeyState, weight, before int) string {
	key := path[0].Key
	free := max(0, st.Limit-st.Used)
	room := fmt.Sprintf("%d of %d free", free, st.Limit)
	next := "next in line"
	if len(st.Keys) > 0 {
		next = called(key) + " is next"
	}
	if text := never(st, path, weight); text != "" {
		return text
	}
	var obstacles []string
	for _, k := range path {
		switch {
		case k.Full && k.Key != key && k.Held < k.Cap && first(st, k.Key) > 1:
			obstacles = append(obstacles, fmt.Sprintf("%s, and its first waiter wants %d", holds(k), first(st, k.Key)))
		case k.Full, lacks(k, weight):
			obstacles = append(obstacles, holds(k))
		case k.Before > 0:
			obstacles = append(obstacles, goBefore(k))
		}
	}
	behind := ""
	if before > 0 {
		behind = "behind " + others(before, key)
	}
	switch {
	case st.Paused:
		return "paused by an operator"
	case before > 0 && len(obstacles) == 0 && free > 0 && first(st, key) > free:
		return fmt.Sprintf("%s; the first wants %d, %s", behind, first(st, key), room)
	case before > 0:
		return strings.Join(append([]string{behind}, obstacles...), "; ")
	case len(obstacles) > 0:
		return strings.Join(obstacles, "; ")
	case st.Used > st.Limit:
		return fmt.Sprintf("%s; %d held, more than the limit %d", next, st.Used, st.Limit)
	case weight > free && free > 0:
		return fmt.Sprintf("%s; wants %d, %s", next, weight, room)
	case weight > free:
		return next + "; " + room
	}
	return "served now"
}

// never says that a weight is above the least of the limit and the caps of a path; "": it is not.
func never(st engine.State, path []engine.KeyState, weight int) string {
	most, whose := st.Limit, ""
	for _, k := range path {
		if k.Cap > 0 && k.Cap < most {
			most, whose = k.Cap, called(k.Key)
		}
	}
	switch {
	case weight <= most:
		return ""
	case whose == "":
		return fmt.Sprintf("never: weight %d is above the limit %d", weight, most)
	}
	return fmt.Sprintf("never: weight %d is above the %d that %s may hold", weight, most, whose)
}

// path is a key and those above it, from the last name on.
func path(key engine.Key, of func(engine.Key) engine.KeyState) (list []engine.KeyState) {
	for n := tree.Level(key); n > 0; n-- {
		list = append(list, of(key))
		key = tree.Above(key)
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
	case tree.Own(key):
		return fmt.Sprintf("the caller of %v itself", tree.Above(key))
	}
	return key.String()
}

// lacks reports whether a key's cap has no room for a weight. An engine calls a key full only if a waiter below
// it waits for nothing else: not if all of those are at their own caps.
func lacks(k engine.KeyState, weight int) bool { return k.Cap > 0 && k.Held+weight > k.Cap }

func holds(k engine.KeyState) string {
	return fmt.Sprintf("%s holds %d of its %d", called(k.Key), k.Held, k.Cap)
}

// goBefore says how many keys are served before one that is not at its cap. Its parent is named where
// they share one.
func goBefore(k engine.KeyState) string {
	what, verb := "keys", "go"
	if k.Before == 1 {
		what, verb = "key", "goes"
	}
	if above := tree.Above(k.Key); above != "" {
		what += " of " + above.String()
	}
	return fmt.Sprintf("%d %s %s before %s", k.Before, what, verb, called(k.Key))
}

func others(n int, key engine.Key) string {
	text := "1 other"
	if n != 1 {
		text = fmt.Sprintf("%d others", n)
	}
	switch {
	case key == "":
		return text
	case tree.Own(key):
		return fmt.Sprintf("%s of %v itself", text, tree.Above(key))
	}
	return text + " of " + key.String()
}

// first is the weight of the first ticket of a key, or of one below it.
func first(st engine.State, key engine.Key) int {
	for _, w := range st.Waiters {
		if tree.In(w.Key, key) {
			return w.Weight
		}
	}
	return 0
}
