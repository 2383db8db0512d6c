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

const limitHelp = `Print the limit of a semaphore. With N, set it; with --unset, unset it.

  sema limit api 20 --per-key 2
  sema limit api --key acme 5 --share 300

A limit that is set is pinned: it stays when nobody uses the semaphore, and
replaces the -n of all programs. A larger limit serves waiters at once. A
smaller limit takes no permit away: sema grants again when less than it is held.
After --unset the limit stays only while the semaphore is in use. "sema rm"
removes an idle semaphore at once.

With --per-key N, each key (see sema run --key) may hold at most N; 0 ends this.
With --key K, N, --share and --unset are for that key only. What a command
leaves out stays as it is.`

func (p *program) limitCommand() *cobra.Command {
	unset, perKey, key, share := false, 0, "", 0
	cmd := p.newCommand("limit [flags] NAME [N]", "Print or set the limit of a semaphore", limitHelp, func(cmd *cobra.Command, args []string) error {
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
	})
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&perKey, "per-key", 0, "how much each key may hold; 0: as much as the limit")
	cmd.Flags().StringVar(&key, "key", "", "print, set or unset the rule of this key")
	cmd.Flags().IntVar(&share, "share", 0, "with --key: its weight in the order of the keys that wait, 1 to 1000; a key without a share has 100")
	cmd.Flags().BoolVar(&unset, "unset", false, "unset the limit, or with --key the rule of the key")
	p.jsonFlag(cmd, `limit prints an object:
  name, limit, pinned, per_key (0: none), previous (only with N or
    --per-key: the limit before, null: none)
  with --key: name, key, held, waiting, cap (0: the limit alone), share, ruled
    (it has a cap or a share of its own)`)
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
