package cli

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
	"sema/internal/view"
)

const limitHelp = `Print the limit of a semaphore, or with N set it, or with --unset unset it.

A limit that was set this way is pinned: it is kept when nobody uses the
semaphore, and holds for everybody, whatever their -n says. A larger limit
serves waiters at once. A smaller one takes no permit away; new ones are
granted when less than it is held.

With --per-key N no key (see sema run --key) holds more than that; 0 ends it.
With --key K, N is the most that this key may hold, whatever holds for the
others, and --share its weight in the order among keys that wait, 100 for those
that have none of their own. What is not named stays as it is:

  sema limit api 20 --per-key 2
  sema limit api --key acme 5 --share 300
  sema limit api --key acme --unset

--unset ends that: the limit stays while the semaphore is in use, and is
forgotten when it has been idle. To be rid of an idle semaphore now: sema rm.

--json prints an object:
  name, limit, pinned, per_key (0: none), previous (only with N or
    --per-key: the limit before, null: none)
  with --key: name, key, held, waiting, cap (0: the limit alone), share, ruled
    (it has a cap or a share of its own)`

func (p *program) limitCommand() *cobra.Command {
	unset, perKey, key, share := false, 0, "", 0
	cmd := &cobra.Command{
		Use:               "limit [flags] NAME [N]",
		Short:             "Print or set the limit of a semaphore",
		Long:              limitHelp,
		Args:              needArgs(1, 2, "NAME [N]"),
		ValidArgsFunction: p.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			n := 0
			given := cmd.Flags().Changed
			if len(args) == 2 {
				var err error
				if n, err = strconv.Atoi(args[1]); err != nil {
					return usage(p.command("limit", quote(args[0]), "3"), "limit %q: want a number", printable(args[1], 60))
				}
				if err := engine.ValidateLimit(n); err != nil {
					return err
				}
			}
			switch {
			case unset && (len(args) == 2 || given("share") || given("per-key")):
				return usage("one of them", "--unset and N, --share or --per-key exclude each other")
			case given("share") && !given("key"):
				return usage("--key K", "--share %d needs --key", share)
			case given("key") && given("per-key"):
				return usage("one of them", "--key and --per-key exclude each other")
			case given("key") && unset:
				return p.unsetKey(cmd.Context(), args[0], key)
			case given("key") && (len(args) == 2 || given("share")):
				return p.setKey(cmd.Context(), args[0], key, sema.Rule{Limit: n, Share: share})
			case given("key"):
				return p.printKey(cmd.Context(), args[0], key)
			case unset:
				return p.unsetLimit(cmd.Context(), args[0])
			case len(args) == 1 && !given("per-key"):
				return p.printLimit(cmd.Context(), args[0])
			}
			rule := sema.Rule{Limit: n}
			if given("per-key") {
				rule.PerKey = cmp.Or(perKey, sema.MaxLimit)
			}
			return p.setLimit(cmd.Context(), args[0], rule)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&perKey, "per-key", 0, "set how much each key may hold; 0: no such cap")
	cmd.Flags().StringVar(&key, "key", "", "print, set or unset what this key may hold")
	cmd.Flags().IntVar(&share, "share", 0, "with --key: its weight among keys that wait, 1 to 1000")
	cmd.Flags().BoolVar(&unset, "unset", false, "forget the limit once nobody uses the semaphore")
	p.jsonFlag(cmd)
	return cmd
}

type limitJSON struct {
	Name   string `json:"name"`
	Limit  int    `json:"limit"`
	Pinned bool   `json:"pinned"`
	PerKey int    `json:"per_key"`
}

type limitSetJSON struct {
	limitJSON
	Previous *int `json:"previous"`
}

func (p *program) printLimit(ctx context.Context, name string) error {
	st, err := p.state(ctx, name)
	if err != nil {
		return err
	}
	return p.writeLimit(name, st)
}

func (p *program) writeLimit(name string, st sema.State) error {
	if p.json {
		return p.writeJSON(limitJSON{name, st.Limit, st.Pinned, st.PerKey})
	}
	return p.write("%d\n", st.Limit)
}

func (p *program) setLimit(ctx context.Context, name string, rule sema.Rule) error {
	var before, after sema.State
	err := p.operate(ctx, "limit", name, func(ctx context.Context, o *sema.Operator) (err error) {
		if before, err = o.State(ctx); err != nil && !errors.Is(err, sema.ErrNotFound) {
			return err
		}
		if err := o.Set(ctx, rule); err != nil {
			return err
		}
		after, err = o.State(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if p.json {
		v := limitSetJSON{limitJSON: limitJSON{name, after.Limit, true, after.PerKey}}
		if before.Limit != 0 {
			v.Previous = &before.Limit
		}
		return p.writeJSON(v)
	}
	return p.write("%d\n", after.Limit)
}

func (p *program) unsetLimit(ctx context.Context, name string) error {
	var st sema.State
	err := p.operate(ctx, "unset limit", name, func(ctx context.Context, o *sema.Operator) error {
		err := o.Unset(ctx)
		if err == nil {
			st, err = o.State(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	if !p.json {
		return p.write("%d, and forgotten once idle\n", st.Limit)
	}
	return p.writeLimit(name, st)
}

type keyJSON struct {
	Name string `json:"name"`
	view.Key
}

func (p *program) setKey(ctx context.Context, name, key string, rule sema.Rule) error {
	return p.withKey(ctx, "set key", name, key, func(ctx context.Context, o *sema.Operator) error { return o.Set(ctx, rule, key) })
}

func (p *program) unsetKey(ctx context.Context, name, key string) error {
	return p.withKey(ctx, "unset key", name, key, func(ctx context.Context, o *sema.Operator) error { return o.Unset(ctx, key) })
}

func (p *program) printKey(ctx context.Context, name, key string) error {
	return p.withKey(ctx, "state", name, key, func(context.Context, *sema.Operator) error { return nil })
}

// withKey does something to a key, and prints what it may hold then.
func (p *program) withKey(ctx context.Context, op, name, key string, do func(context.Context, *sema.Operator) error) error {
	var st sema.State
	err := p.operate(ctx, op, name, func(ctx context.Context, o *sema.Operator) error {
		err := do(ctx, o)
		if err == nil {
			st, err = o.State(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	of := view.Key{Key: key, Cap: st.PerKey, Share: engine.DefaultShare} // one that nobody uses
	for _, k := range view.Of(name, st).Keys {
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
