package sema

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
)

// AcquireOption changes one acquisition. The zero value changes nothing. Of several options of
// one kind the last one counts.
type AcquireOption struct {
	kind optionKind
	n    int64
	text string
}

type optionKind uint8

const (
	noOption optionKind = iota
	weightOption
	keyOption
	labelOption
	waitOption
	answerOption
	priorityOption
	takeOption
)

// Weight takes n of the limit, all of it at once or nothing: 1 … engine.MaxLimit. Default: 1. A weight
// above the limit, or above the cap of the key, fails with a *WeightError. Cost: a heavy caller
// blocks those behind it, until as much is free.
func Weight(n int) AcquireOption { return AcquireOption{kind: weightOption, n: int64(n)} }

// For is the key of the acquisition: a tenant, a host, a user, a model; or a path of up to three
// names, such as an organisation and a user of it. Its permits count against the limit of the
// Semaphore, and at each step of the path against the cap there, which Options.Caps or Operator.Set gave it. All of it is taken in one step, so nobody holds a place while it waits for
// another.
//
// Within a key callers are served in the order in which they came. Among the keys at one place of the
// path the next free weight goes to the key that holds the fewest whole shares; among such keys, in
// turn. So a key with a thousand callers delays the others no more than one with two. A user who
// makes up keys costs its own organisation alone. What nobody else wants is any key's, up to its
// cap. A key at its cap blocks nobody but those below it.
//
// Keys are compared byte by byte: lower-case what means the same, such as hosts. A key has
// 1 … 255 bytes of UTF-8 without control characters, with a byte between names. Acquire fails with an
// *ArgumentError on another one. Operators see keys: hash what is a secret, such as an API key. Take keys from
// authentication and not from the caller's own words: a caller that makes up many keys gets as
// many shares. For() is no key. Empty names at the end are left out: For("acme", user) is
// For("acme") if there is no user. The first name is never left out: For("") fails. Default: no key. Cost: on Redis a step takes the server longer, a
// hand-off about twice as long.
func For(path ...string) AcquireOption {
	path = engine.Given(path)
	return AcquireOption{kind: keyOption, n: int64(len(path)), text: strings.Join(path, engine.KeySeparator)}
}

// Take takes n of a pool as well, of those in Options.Pools: a GPU, a licence, a connection; or of a rate: a request, 3,200 tokens. Each pool has a Take of
// its own; of two for one pool the last one counts. All of it, the Weight too, is taken in one step or nothing: so
// nobody holds one pool while it waits for another. A caller that waits for a pool blocks those alone that want some of it.
// The first waiter of a pool reserves what it wants, so that a caller who wants much is not passed for ever. n is
// 1 … engine.MaxLimit. Acquire fails with an *ArgumentError on another one, or if key and Takes have more than 255 bytes together; with a *WeightError if the pool has less than n; and with an ErrNoPool if there is no such
// pool. Default: no pool. Cost: as of For; and a step looks at each set of pools that is waited for. At most 16 sets
// may wait: another one fails with a *BusyError.
func Take(pool string, n int) AcquireOption {
	return AcquireOption{kind: takeOption, n: int64(n), text: pool}
}

// Label is shown to operators beside the permit or the wait: "job 7". At most 255 bytes of
// printable UTF-8. Acquire fails with an *ArgumentError on another one. The label of a permit stays
// as it was at its acquisition. Permits pass within a process, see Options.Keep, between callers of the
// same label only. Two callers of a process that the engine serves in the other order, because a
// message was late, may be shown under each other's labels. Cost: on Redis an acquisition with a label
// takes the server about as long as one that waits. Default: Options.Label.
func Label(text string) AcquireOption { return AcquireOption{kind: labelOption, text: text} }

// WaitAtMost bounds the wait in the queue, beside the context, and in Do leaves the work alone. Acquire fails with
// ErrBusy after d, or with ErrEngine if the engine has failed until then. The engine's first answer is awaited
// in any case, for up to three seconds: see AnswerWithin. With a d of 0 or less
// it does not wait, as TryAcquire.
// Default: the context bounds the wait. Cost: none.
func WaitAtMost(d time.Duration) AcquireOption {
	return AcquireOption{kind: waitOption, n: int64(max(0, d))}
}

// AnswerWithin bounds the wait for an engine that is away. If the engine has said nothing for d, neither
// that the permit is granted nor that its caller is queued, Acquire fails with ErrEngine. Nothing is
// held then. Time in which this process could not run does not count. A caller that the engine has
// queued goes on waiting. Default: three seconds. A d of 0 or
// less, or of three seconds or more, changes nothing. Cost: none.
func AnswerWithin(d time.Duration) AcquireOption {
	return AcquireOption{kind: answerOption, n: int64(max(0, d))}
}

// Priority counts as time that the caller has waited already, for its place among those of its
// key: so it starves nobody. State shows it as waited. 0 … 24 h. Acquire fails with an
// *ArgumentError on another one. Default: 0. Cost: those that it goes before wait longer.
func Priority(d time.Duration) AcquireOption {
	return AcquireOption{kind: priorityOption, n: int64(d)}
}

// Asked is what the options of an acquisition ask for, for packages that take options and pass
// them on.
type Asked struct {
	Key      engine.Key    // of For; "" without one
	Priority time.Duration // 0 without one
	Wait     time.Duration // of WaitAtMost; 0 without a bound, and without a wait
	Answer   time.Duration // of AnswerWithin; 0 for three seconds
}

// ReadOptions says what options ask for. What is wrong with them Acquire says.
func ReadOptions(options ...AcquireOption) Asked {
	w, _ := fold(true, options)
	return Asked{w.Key, w.priority, w.most, w.answer}
}

// maxPriority bounds Priority.
const maxPriority = 24 * time.Hour

// wish is what the options of an acquisition come to.
type wish struct {
	protocol.Target
	weight   int
	label    string
	wait     bool          // queue if need be
	most     time.Duration // so long; 0: as the context says
	answer   time.Duration // 0: as long as usual
	priority time.Duration
}

// fold makes a wish of options. Its errors are *ArgumentErrors.
func fold(wait bool, options []AcquireOption) (w wish, err error) {
	w = wish{weight: 1, wait: wait}
	names, takes := 0, map[string]int(nil)
	for _, o := range options {
		switch d := time.Duration(o.n); o.kind {
		case weightOption:
			w.weight = int(o.n)
		case keyOption:
			w.Key, names = engine.Key(o.text), int(o.n)
		case labelOption:
			w.label = o.text
		case waitOption:
			w.wait, w.most = wait && d > 0, d
		case answerOption:
			if 0 < d && d < client.Patience {
				w.answer = d
			}
		case priorityOption:
			w.priority = d
		case takeOption:
			if takes == nil {
				takes = map[string]int{}
			}
			takes[o.text] = int(o.n)
		}
	}
	switch {
	case w.weight < 1 || w.weight > engine.MaxLimit:
		return w, &ArgumentError{What: "weight", Value: w.weight, Want: fmt.Sprintf("1 … %d", engine.MaxLimit)}
	case names > 0 && names != strings.Count(string(w.Key), engine.KeySeparator)+1, names > 0 && w.Key == "":
		return w, &ArgumentError{What: "key", Value: string(w.Key), Want: "names that are not empty, without control characters"}
	case names > 0:
		if err := w.Key.Validate(); err != nil {
			return w, err
		}
	}
	if takes != nil {
		pools, err := engine.NewPools(takes, 1)
		w.Takes = pools
		if err := cmp.Or(err, w.Target.Validate()); err != nil {
			return w, err
		}
	}
	if w.label != "" {
		if err := engine.ValidateText("label", w.label, engine.MaxLabel); err != nil {
			return w, err
		}
	}
	if w.priority != 0 {
		return w, engine.ValidateRange("", "priority", w.priority, 0, maxPriority)
	}
	return w, nil
}
