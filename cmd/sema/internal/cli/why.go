package cli

import (
	"fmt"
	"io"
	"slices"

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
at a pool that is full, only those who hold some of it.

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
			if w.Weight == 0 {
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
    reason (what is in front: who goes first, or what blocks at the key, from its
    last name on, at pools and at the limit),
    position (from 1, among those of its key that take the same pools; 0: it does
    not wait), weight_before (of those of them that are before it)
  holders, before: lists as "sema show --json" has them as holders and waiters;
    at a full key, holders are those of that key and of the keys below it; at a
    pool that is full, those who hold some of it`)
	return cmd
}

// why is what stands in front of one permit.
type why struct {
	look          view.Look
	engine.Waiter // Weight 0: there is no such permit
	reason        string
	position      int // 0: it does not wait
	before        []engine.Waiter
	ahead         int // weight of those
}

// whyOf finds a permit by its id; "" is one that would be asked for now, for a key and with some of pools.
func whyOf(st sema.State, permit string, key engine.Key, takes engine.Pools, weight int) why {
	w := why{look: view.LookAt(st), Waiter: engine.Waiter{ID: permit, Key: key, Takes: takes, Weight: weight}}
	for _, h := range st.Holders {
		if h.ID == permit {
			w.Key, w.Takes, w.Weight, w.reason = h.Key, h.Takes, h.Weight, "nothing: the permit is held"
			return w
		}
	}
	at := slices.IndexFunc(st.Waiters, func(o engine.Waiter) bool { return o.ID == permit })
	switch {
	case at >= 0:
		w.Waiter = st.Waiters[at]
	case permit != "":
		return w
	default:
		at = len(st.Waiters)
	}
	for _, o := range st.Waiters[:at] {
		if o.Key == w.Key && o.Takes.Names() == w.Takes.Names() {
			w.before = append(w.before, o)
			w.ahead += o.Weight
		}
	}
	w.position, w.reason = len(w.before)+1, w.look.Why(w.Waiter)
	if permit == "" && w.reason == view.Served {
		w.position, w.reason = 0, fmt.Sprintf("nothing: a permit of weight %d is free now", weight)
	}
	return w
}

// holders are those whose releases help: those of the first bound that is full, or else all.
func (w why) holders() []engine.Holder {
	for _, b := range w.look.Bounds(w.Waiter) {
		if b.Wants > b.Limit-b.Held {
			return slices.DeleteFunc(slices.Clone(w.look.Holders), func(h engine.Holder) bool { return b.Part(h.Key, h.Takes, h.Weight) == 0 })
		}
	}
	return w.look.Holders
}

// text is the answer for human eyes. Text that others wrote is made printable.
func (w why) text(t io.Writer, name string) {
	subject := "a run that asks now"
	switch {
	case w.ID != "":
		subject = w.ID
	case w.Key != "":
		subject += " for " + printable(w.Key.String(), 60)
	}
	if w.ID == "" && w.Takes != "" {
		subject += " with " + string(w.Takes)
	}
	fmt.Fprintf(t, "%s: in front of %s: %s\n", printable(name, engine.MaxName), subject, w.reason)
	if w.position == 0 || len(w.holders())+len(w.before) == 0 {
		return
	}
	keyed, pooled := view.Keyed(w.look.State), len(w.look.Pools) > 0
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
	part := w.look.State
	part.Holders, part.Waiters = w.holders(), w.before
	shown := view.Of(name, part)
	return whyJSON{
		Name: name, Limit: w.look.Limit, Used: w.look.Used, Permit: w.ID, Key: w.Key, Takes: w.Takes, Weight: w.Weight,
		Waits: w.position > 0, Reason: w.reason, Position: w.position, Ahead: w.ahead,
		Holders: shown.Holders, Before: shown.Waiters,
	}
}
