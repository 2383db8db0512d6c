package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
	"sema/internal/view"
)

const whyHelp = `Say who is in front of a permit: who holds the semaphore, since when, and who
waits. Without PERMIT it is about a run that would ask now, with weight -w, key
--key and pools --take. With PERMIT it is about that waiter; "sema show NAME"
lists waiters.
At a full key it lists only the holders of that key, and of the keys below it;
at a pool that lacks room, only those who hold some of it.

  sema why downloads
  sema why api --key acme/alice --take gpu=1`

func (p *program) whyCommand() *cobra.Command {
	weight, key, takes := 1, engine.Key(""), engine.Pools("")
	cmd := p.newCommand("why [flags] NAME [PERMIT]", "Say who is in front, since when, and what they are", whyHelp, func(cmd *cobra.Command, args []string) error {
		if weight < 1 {
			return usage("-w 1", "weight %d: want 1 or more", weight)
		}
		st, err := p.state(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		w := whyOf(st, "", key, takes, weight)
		if len(args) == 2 {
			w = whyOf(st, args[1], "", "", 0)
			if w.weight == 0 {
				return &exit{exitLost, usage(p.command("show", quote(args[0])), "%q has no permit and no waiter %s", args[0], printable(args[1], 60))}
			}
		}
		if p.json {
			return p.writeJSON(w.json(args[0]))
		}
		return p.write("%s", aligned(func(t io.Writer) { w.text(t, args[0]) }))
	})
	cmd.Flags().IntVarP(&weight, "weight", "w", 1, "without PERMIT: weight of the run that would ask")
	keyFlag(cmd, &key, "without PERMIT: key of the run that would ask")
	poolsFlag(cmd, &takes, "take", 1, "without PERMIT: what the run that would ask takes of pools: gpu=1,licence=2")
	p.jsonFlag(cmd, `why prints an object; times are seconds, with fractions:
  name, limit, used, permit ("" without PERMIT), key (a text, or a list of several
    names), takes (amounts by pool), weight, waits (false: it holds the permit, or
    would get one at once),
    reason (what is in front, at the last name of the key first, at pools last),
    position (from 1, among those of its key that take the same pools; 0: it does
    not wait), weight_before (of those of them that are before it)
  holders, before: lists as "sema show --json" has them as holders and waiters;
    at a full key, holders are those of that key and of the keys below it; at a
    pool that lacks room, those who hold some of it`)
	return cmd
}

// why is what stands in front of one permit.
type why struct {
	st       sema.State
	permit   string
	key      engine.Key
	takes    engine.Pools
	weight   int // 0: there is no such permit
	position int // 0: it does not wait
	before   []engine.Waiter
	ahead    int // weight of those
}

// whyOf finds a permit by its id; "" is one that would be asked for now, for a key and with some of pools.
func whyOf(st sema.State, permit string, key engine.Key, takes engine.Pools, weight int) why {
	w := why{st: st, permit: permit, key: key, takes: takes, weight: weight}
	for _, h := range st.Holders {
		if h.ID == permit {
			w.weight, w.key, w.takes = h.Weight, h.Key, h.Takes
			return w
		}
	}
	at := len(st.Waiters)
	for i, waiter := range st.Waiters {
		if waiter.ID == permit {
			at, w.weight, w.key, w.takes = i, waiter.Weight, waiter.Key, waiter.Takes
			break
		}
	}
	for _, waiter := range st.Waiters[:at] {
		if view.Beside(waiter, engine.Waiter{Key: w.key, Takes: w.takes}) {
			w.before = append(w.before, waiter)
			w.ahead += waiter.Weight
		}
	}
	if at < len(st.Waiters) || permit == "" && !w.free() {
		w.position = len(w.before) + 1
	}
	return w
}

// free reports whether a permit that is asked for now is granted at once.
func (w why) free() bool {
	return view.Why(w.asked(), w.key, w.takes, w.weight, len(w.before)) == view.Served && (len(w.st.Waiters) == 0 || !w.keyless())
}

// keyless reports whether nothing tells keys apart, nor would with the permit.
func (w why) keyless() bool {
	return len(w.st.Keys) == 0 && w.st.Caps == (sema.Caps{}) && w.key == ""
}

// reason is the answer in a few words.
func (w why) reason() string {
	switch {
	case w.position == 0 && w.permit == "":
		return fmt.Sprintf("nothing: a permit of weight %d is free now", w.weight)
	case w.position == 0:
		return "nothing: the permit is held"
	}
	return view.Why(w.asked(), w.key, w.takes, w.weight, len(w.before))
}

// asked is the state as it is once the permit has been asked for.
func (w why) asked() sema.State {
	st := w.st
	if w.permit != "" || w.keyless() {
		return st
	}
	st.Keys = slices.Clone(st.Keys)
	for _, k := range w.st.Keys {
		own := k.Key + engine.KeySeparator
		if strings.HasPrefix(string(w.key), string(own)) && view.Path(w.st, k.Key)[0].Key == k.Key {
			// The callers that it has had alone are beside those below it from now on.
			st.Keys = append(st.Keys, engine.KeyState{Key: own, Held: k.Held, Waiting: k.Waiting, Share: engine.DefaultShare, InTurn: k.Waiting > 0})
		}
	}
	first := len(w.before) == 0 // the permit is the first that this key waits for
	lanes, _ := view.Lanes(w.st)
	waits := func(k engine.KeyState) bool {
		_, waits := lanes[view.Lane{Key: k.Key, Set: w.takes.Names()}]
		return k.InTurn && (waits || len(w.st.Pools) == 0)
	}
	for _, k := range view.Path(st, w.key) {
		st.Keys = slices.DeleteFunc(st.Keys, func(o engine.KeyState) bool { return o.Key == k.Key })
		if first {
			k.Full = k.Cap > 0 && k.Held+w.weight > k.Cap && w.weight <= k.Cap || k.Full && k.Waiting > 0 && len(st.Pools) > 0
		}
		if first && !waits(k) {
			k.Before = 0
			for _, o := range st.Keys {
				// Of two that hold as much, the one that waits already goes first.
				if waits(o) && o.Key.Above() == k.Key.Above() && view.HeldFor(st, o, w.takes)*engine.DefaultShare/o.Share <= view.HeldFor(st, k, w.takes)*engine.DefaultShare/k.Share {
					k.Before++
				}
			}
		}
		first = first && !k.Full && k.Before == 0
		st.Keys = append(st.Keys, k)
	}
	return st
}

// holders are those whose releases help: those of the full key with the most names, else those of a pool that
// lacks room, or else all.
func (w why) holders() []engine.Holder {
	for _, k := range view.Path(w.asked(), w.key) {
		if k.Cap > 0 && k.Held+w.weight > k.Cap {
			return slices.DeleteFunc(slices.Clone(w.st.Holders), func(h engine.Holder) bool { return h.Key.First(k.Key.Level()) != k.Key })
		}
	}
	for name, n := range w.takes.All() {
		if p, ok := view.PoolOf(w.st, name); ok && p.Used+n > p.Limit {
			return slices.DeleteFunc(slices.Clone(w.st.Holders), func(h engine.Holder) bool { return h.Takes.Of(name) == 0 })
		}
	}
	return w.st.Holders
}

// text is the answer for human eyes. Text that others wrote is made printable.
func (w why) text(t io.Writer, name string) {
	subject := "a run that asks now"
	switch {
	case w.permit != "":
		subject = w.permit
	case w.key != "":
		subject += " for " + printable(w.key.String(), 60)
	}
	if w.permit == "" && w.takes != "" {
		subject += " with " + string(w.takes)
	}
	fmt.Fprintf(t, "%s: in front of %s: %s\n", printable(name, engine.MaxName), subject, w.reason())
	if w.position == 0 || len(w.holders())+len(w.before) == 0 {
		return
	}
	keyed, pooled := view.Keyed(w.st), len(w.st.Pools) > 0
	fmt.Fprintf(t, "WHO\t%sWEIGHT\t%sSINCE\tHOST\tPID\tPERMIT\tWHAT\n", keyCell(keyed, "KEY"), takesCell(pooled, "TAKES"))
	for _, h := range view.ByToken(w.holders()) {
		who := "holds"
		if h.Revoked {
			who = "holds, revoked"
		}
		fmt.Fprintf(t, "%s\t%s%d\t%s%s\t%s\t%d\t%s\t%s\n", who, keyCell(keyed, h.Key), h.Weight, takesCell(pooled, h.Takes), held(h),
			printable(h.Client.Host, 60), h.Client.PID, h.ID, printable(h.Client.Label, 60))
	}
	for _, x := range w.before {
		fmt.Fprintf(t, "waits\t%s%d\t%s%s\t%s\t%d\t%s\t%s\n", keyCell(keyed, x.Key), x.Weight, takesCell(pooled, x.Takes), brief(x.Waiting),
			printable(x.Client.Host, 60), x.Client.PID, x.ID, printable(x.Client.Label, 60))
	}
}

type whyJSON struct {
	Name     string        `json:"name"`
	Limit    int           `json:"limit"`
	Used     int           `json:"used"`
	Permit   string        `json:"permit"`
	Key      engine.Key    `json:"key"`
	Takes    engine.Pools  `json:"takes"`
	Weight   int           `json:"weight"`
	Waits    bool          `json:"waits"`
	Reason   string        `json:"reason"`
	Position int           `json:"position"`
	Ahead    int           `json:"weight_before"`
	Holders  []view.Holder `json:"holders"`
	Before   []view.Waiter `json:"before"`
}

func (w why) json(name string) whyJSON {
	part := w.st
	part.Holders, part.Waiters = w.holders(), w.before
	shown := view.Of(name, part)
	return whyJSON{
		Name: name, Limit: w.st.Limit, Used: w.st.Used, Permit: w.permit, Key: w.key, Takes: w.takes, Weight: w.weight,
		Waits: w.position > 0, Reason: w.reason(), Position: w.position, Ahead: w.ahead,
		Holders: shown.Holders, Before: shown.Waiters,
	}
}
