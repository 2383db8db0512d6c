package view

import (
	"fmt"

	"sema/engine"
)

// Why says in a few words what stands in front of a permit of a weight, for a key, with
// so many tickets of that key before it in the queue of a semaphore. The key is "" if the
// permit is for none.
func Why(st engine.State, key string, weight, before int) string {
	return WhyKey(st, keyOf(st, key), weight, before)
}

// WhyKey is Why for a key that is known already: to ask about each of many takes no search.
func WhyKey(st engine.State, k engine.KeyState, weight, before int) string {
	key := k.Key
	free := max(0, st.Limit-st.Used)
	room := fmt.Sprintf("%d of %d free", free, st.Limit)
	next := "next in line"
	if len(st.Keys) > 0 {
		next = called(key) + " is next"
	}
	switch {
	case weight > st.Limit:
		return fmt.Sprintf("never: weight %d is above the limit %d", weight, st.Limit)
	case k.Cap > 0 && weight > k.Cap:
		return fmt.Sprintf("never: weight %d is above the %d that %s may hold", weight, k.Cap, called(key))
	case st.Paused:
		return "paused by an operator"
	case k.Full && before > 0:
		return fmt.Sprintf("behind %s; %s", others(before, key), holds(k))
	case k.Full:
		return holds(k)
	case before > 0 && free > 0 && first(st, key) > free:
		return fmt.Sprintf("behind %s; the first wants %d, %s", others(before, key), first(st, key), room)
	case before > 0:
		return "behind " + others(before, key)
	case k.Before == 1:
		return "1 key goes before " + called(key)
	case k.Before > 1:
		return fmt.Sprintf("%d keys go before %s", k.Before, called(key))
	case st.Used > st.Limit:
		return fmt.Sprintf("%s; %d held, more than the limit %d", next, st.Used, st.Limit)
	case weight > free && free > 0:
		return fmt.Sprintf("%s; wants %d, %s", next, weight, room)
	case weight > free:
		return next + "; " + room
	}
	return "served now"
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

// keyOf is what a semaphore has of a key; nothing if it has no keys.
func keyOf(st engine.State, key string) engine.KeyState {
	for _, k := range st.Keys {
		if k.Key == key {
			return k
		}
	}
	return engine.KeyState{Key: key}
}

func called(key string) string {
	if key == "" {
		return "the caller without a key"
	}
	return key
}

func holds(k engine.KeyState) string {
	return fmt.Sprintf("%s holds %d of its %d", called(k.Key), k.Held, k.Cap)
}

func others(n int, key string) string {
	text := "1 other"
	if n != 1 {
		text = fmt.Sprintf("%d others", n)
	}
	if key != "" {
		text += " of " + key
	}
	return text
}

// first is the weight of the first ticket of a key.
func first(st engine.State, key string) int {
	for _, w := range st.Waiters {
		if w.Key == key {
			return w.Weight
		}
	}
	return 0
}
