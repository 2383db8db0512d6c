package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
	"sema/internal/view"
)

const limitHelp = `Print the limit of a semaphore. With N, set it; with --unset, unset it.

  sema limit api 200 --caps 20,4 --pool gpu=6
  sema limit api --key acme/alice 6 --share 300

A limit that is set is pinned: it stays when nobody uses the semaphore, and
replaces the -n of all programs. A larger limit serves waiters at once. A
smaller limit takes no permit away: sema grants again when less than it is held.
After --unset the limit stays only while the semaphore is in use. With --observe
nobody waits, and sema counts who would have; N enforces the limit again.

With --caps 20,4, each key of one name (see sema run --key) may hold at most 20,
and each of two names at most 4; - in a place, or no place, is no cap. --pool is
how much there is of pools (see sema run --take). With --key acme/alice, N,
--share and --unset are for that key only, and N counts for all below it. What a
command leaves out stays as it is.`

func (p *program) limitCommand() *cobra.Command {
	unset, observe, caps, pools, key, share := false, false, sema.Caps{}, engine.Pools(""), engine.Key(""), 0
	cmd := p.newCommand("limit [flags] NAME [N]", "Print or set the limit of a semaphore", limitHelp, func(cmd *cobra.Command, args []string) error {
		given := cmd.Flags().Changed
		rule := sema.Rule{Share: share, Pools: pools, Observe: observe}
		if len(args) == 2 {
			var err error
			if rule.Limit, err = strconv.Atoi(args[1]); err != nil {
				return usage(p.command("limit", quote(args[0]), "3"), "limit %q: want a number", printable(args[1], 60))
			}
			if err := engine.ValidateLimit(rule.Limit); err != nil && rule.Limit == 0 && key == "" {
				return usage(p.command("pause", quote(args[0])), "%v", err)
			} else if err != nil {
				return err
			}
		}
		for i, n := range caps {
			if given("caps") {
				rule.Caps[i] = cmp.Or(n, engine.MaxLimit)
			}
		}
		set := len(args) == 2 || given("share") || given("caps") || given("pool") || observe
		switch {
		case unset && set:
			return usage("one of them", "--unset and N, --share, --caps, --pool or --observe exclude each other")
		case given("share") && !given("key"):
			return usage("--key K", "--share %d needs --key", share)
		case given("share") && share == 0: // to the library it means as before
			return usage("--share 100", "share 0: want 1 … %d", engine.MaxShare)
		case given("key") && given("caps"):
			return usage("one of them", "--key and --caps exclude each other")
		case given("observe") && !observe:
			return usage(p.command("limit", quote(args[0]), "12"), "--observe=false: a limit that is set is enforced")
		case given("key") && observe:
			return usage("one of them", "--key and --observe exclude each other")
		case given("key") && given("pool"):
			return usage("one of them", "--key and --pool exclude each other")
		}
		var before, after sema.State
		err := p.operate(cmd.Context(), "limit", args[0], func(ctx context.Context, o *sema.Operator) (err error) {
			if before, err = o.State(ctx); err != nil && (!set || !errors.Is(err, sema.ErrNotFound)) {
				return err
			}
			switch {
			case unset:
				err = o.Unset(ctx, key.Names()...)
			case set:
				err = o.Set(ctx, rule, key.Names()...)
			default:
				after = before
				return nil
			}
			if err == nil {
				after, err = o.State(ctx)
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case given("key"):
			return p.writeKey(args[0], key, after)
		case p.json:
			doc := limitJSON{Name: args[0], Limit: after.Limit, Pinned: after.Pinned, Caps: after.Caps.List(), Pools: view.Pools(after.Pools), Observed: after.Observed}
			if set && before.Limit > 0 {
				doc.Previous = before.Limit
			} else if set {
				doc.Previous = (*int)(nil)
			}
			return p.writeJSON(doc)
		case unset:
			return p.write("%d, and forgotten once idle\n", after.Limit)
		}
		text := fmt.Sprint(after.Limit)
		if given("caps") {
			text += ", " + capsWords(after.Caps)
		}
		if given("pool") {
			text += ", " + poolsWords(there(after))
		}
		if after.Observed != nil {
			text += ", only watched: " + view.Observes(after.Observed, after.Limit)
		}
		return p.write("%s\n", text)
	})
	cmd.Flags().SortFlags = false
	capsFlag(cmd, &caps, "how much each key of one name may hold, each of two names, each of three; - is no cap")
	poolsFlag(cmd, &pools, "pool", 0, "how much there is of pools, of which others stay: gpu=6; 0 ends a pool")
	keyFlag(cmd, &key, "print, set or unset the rule of this key: acme, or acme/alice")
	cmd.Flags().IntVar(&share, "share", 0, "with --key: its weight in the order of the keys that wait beside it, 1 to 1000; a key without a share has 100")
	cmd.Flags().BoolVar(&observe, "observe", false, "only watch the limit: nobody waits, and who would have is counted")
	cmd.Flags().BoolVar(&unset, "unset", false, "unset the limit, or with --key the rule of the key")
	p.jsonFlag(cmd, `limit prints an object:
  name, limit, pinned, caps (of keys of one name, of two, of three; 0: none;
    zeros at the end are left out), pools (as show has them),
    observed (as show has it; missing if the limit is enforced),
    previous (only with N, --caps or --pool: the limit before, null: none)
  with --key: name, key, held, waiting, cap (0: none), share, ruled (it has a cap
    or a share of its own)`)
	return cmd
}

type limitJSON struct {
	Name     string           `json:"name"`
	Limit    int              `json:"limit"`
	Pinned   bool             `json:"pinned"`
	Caps     []int            `json:"caps"`
	Pools    []view.PoolState `json:"pools"`
	Observed *engine.Observed `json:"observed,omitempty"`
	Previous any              `json:"previous,omitempty"` // only if it was set: a number, or null
}

// there is how much there is of each pool.
func there(st sema.State) engine.Pools {
	var list []string
	for _, p := range st.Pools {
		if p.Limit > 0 {
			list = append(list, p.Pool+"="+p.Amount().String())
		}
	}
	return engine.Pools(strings.Join(list, ","))
}

type keyJSON struct {
	Name string `json:"name"`
	view.Key
}

// writeKey prints what a key may hold.
func (p *program) writeKey(name string, key engine.Key, st sema.State) error {
	of := view.Key{Key: key, Cap: view.CapOf(st.Caps, key), Share: engine.DefaultShare} // one that nobody uses
	for _, k := range view.LookAt(st).Rows() {
		if k.Key == key {
			of = k
		}
	}
	switch {
	case p.json:
		return p.writeJSON(keyJSON{name, of})
	case of.Cap == 0:
		return p.write("no cap, share %d\n", of.Share)
	}
	return p.write("%d, share %d\n", of.Cap, of.Share)
}
