package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
	"sema/internal/view"
	"sema/internal/wire"
)

const applyHelp = `Set the limits that a JSON file has, which a repository and its CI can keep:

  {
    "api":   {"limit": 200, "caps": [20, 4], "pools": {"rpm": "500/1m"}},
    "build": {"limit": 4, "keys": {"acme/alice": {"limit": 1, "share": 300}}}
  }

caps are how much each key of one name may hold, each of two names, each of three;
0 is no cap. With "observe": true a limit is only watched, with false it holds. What
the file leaves out stays as it is. With --prune, what an operator set and the file
leaves out is unset: caps, pools, rules of keys, and the limits of other semaphores.
A second run changes nothing.

If one entry is wrong, nothing is changed.`

// wanted is an entry of the file.
type wanted struct {
	Limit wire.Whole   `json:"limit"`
	Caps  []wire.Whole `json:"caps"`
	Pools wire.Amounts `json:"pools"`
	Keys  wire.Fields  `json:"keys"`

	Observe *bool `json:"observe"` // nil: as it is

	caps  engine.Caps
	pools engine.Pools
	keys  map[engine.Key]sema.Rule
}

// change is one that apply makes.
type change struct {
	name, text string
	do         func(context.Context, *sema.Operator) error
}

func (p *program) applyCommand() *cobra.Command {
	file, dry, prune := "", false, false
	cmd := p.newCommand("apply [flags]", "Set the limits that a file has", applyHelp, func(cmd *cobra.Command, _ []string) error {
		all, err := p.readLimits(file)
		if err != nil {
			return err
		}
		if prune && len(all) == 0 {
			return usage("without --prune", "the file has no semaphore: --prune would unset all")
		}
		at, err := p.open(defaultLease)
		if err != nil {
			return err
		}
		defer at.close()
		changes, err := p.changes(cmd.Context(), at, all, prune)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if !dry {
				if err := p.operateAt(cmd.Context(), at, "apply", c.name, c.do); err != nil {
					return err
				}
			}
			if err := p.write("%s: %s\n", printable(c.name, engine.MaxName), c.text); err != nil {
				return err
			}
		}
		if len(changes) == 0 {
			p.say("nothing to change")
		}
		return nil
	})
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file; - is standard input")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the changes, and make none")
	cmd.Flags().BoolVar(&prune, "prune", false, "unset what the file leaves out")
	return cmd
}

// readLimits reads the file and checks all of it. An error names the line on which the wrong entry begins.
func (p *program) readLimits(file string) (map[string]*wanted, error) {
	text, err := []byte(nil), error(nil)
	switch file {
	case "":
		return nil, usage("-f limits.json", "there is no file")
	case "-":
		text, err = io.ReadAll(p.stdin)
	default:
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, usage("-f limits.json", "%v", err)
	}
	all, line, err := parseLimits(text)
	if err != nil {
		return nil, usage(p.command("help", "apply"), "%s:%d: %v. Nothing was changed", file, line, err)
	}
	return all, nil
}

// parseLimits reads a file of limits. The line is that of an error.
func parseLimits(text []byte) (all map[string]*wanted, line int, err error) {
	all = map[string]*wanted{}
	d := json.NewDecoder(bytes.NewReader(text))
	at := func() int { return 1 + bytes.Count(text[:d.InputOffset()], []byte("\n")) }
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, at(), errors.New("want an object with a field for each semaphore")
	}
	for d.More() {
		t, err := d.Token()
		name, q, entry := fmt.Sprint(t), &wanted{}, json.RawMessage(nil)
		line = at()
		switch {
		case err != nil:
		case all[name] != nil:
			err = errors.New("it is there twice")
		default:
			err = cmp.Or(engine.ValidateName(name), d.Decode(&entry))
		}
		if err == nil {
			err = cmp.Or(wire.Decode(entry, q), q.check())
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the file ends too early")
		}
		if all[name] = q; err != nil {
			return nil, line, fmt.Errorf("%q: %w", name, err)
		}
	}
	if _, err := d.Token(); err != nil || len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return nil, at(), errors.New("the file has to end with the object")
	}
	return all, 0, nil
}

// check says what is wrong with an entry.
func (q *wanted) check() (err error) {
	if len(q.Caps) > engine.MaxDepth {
		return fmt.Errorf("%d caps: want at most %d", len(q.Caps), engine.MaxDepth)
	}
	for i, n := range q.Caps {
		q.caps[i] = int(n) % engine.MaxLimit // which is no cap
	}
	q.pools, err = engine.PoolsOf(q.Pools, 1)
	if err := cmp.Or(engine.ValidateRange("", "limit", int(q.Limit), 0, engine.MaxLimit), q.caps.Validate(), err); err != nil {
		return err
	}
	q.keys = map[engine.Key]sema.Rule{}
	for name, text := range q.Keys {
		key, err := engine.ParseKey(name)
		var k struct{ Limit, Share wire.Whole }
		err = cmp.Or(err, wire.Decode(text, &k), engine.ValidateRange("", "limit", int(k.Limit), 0, engine.MaxLimit), engine.ValidateRange("", "share", int(k.Share), 0, engine.MaxShare))
		switch {
		case err != nil:
		case key == "":
			err = errors.New("a key has 1 to 3 names with slashes between")
		case q.keys[key] != sema.Rule{}:
			err = errors.New("it is there twice")
		case k.Limit+k.Share == 0:
			err = errors.New("it has neither limit nor share")
		}
		if err != nil {
			return fmt.Errorf("key %q: %w", name, err)
		}
		q.keys[key] = sema.Rule{Limit: int(k.Limit), Share: int(k.Share)}
	}
	return nil
}

// changes lists the differences between the file and the engine.
func (p *program) changes(ctx context.Context, at *openEngine, all map[string]*wanted, prune bool) (list []change, err error) {
	names := slices.Collect(maps.Keys(all))
	if prune {
		others, err := at.list(ctx, "")
		if err != nil {
			return nil, err
		}
		for _, s := range others {
			if all[s.Name] == nil {
				names = append(names, s.Name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		var st sema.State
		err := p.operateAt(ctx, at, "state", name, func(ctx context.Context, o *sema.Operator) (err error) {
			if st, err = o.State(ctx); errors.Is(err, sema.ErrNotFound) {
				return nil
			}
			return err
		})
		q := all[name]
		if q == nil && st.Pinned {
			list = append(list, change{name, "unset", func(ctx context.Context, o *sema.Operator) error { return o.Unset(ctx) }})
		}
		switch {
		case err != nil:
			return nil, err
		case q == nil:
			list = append(list, (&wanted{}).keyChanges(name, st, true)...)
			continue
		case q.Limit == 0 && st.Limit == 0:
			return nil, usage(`"limit": 10`, "%q: there is no such semaphore, and the file gives it no limit. Nothing was changed", name)
		}
		rule, words := q.change(st, prune)
		if _, err := there(st).With(rule.Pools); err != nil {
			return nil, usage("--prune", "%q: %v. Nothing was changed", name, err)
		}
		if len(words) > 0 {
			list = append(list, change{name, strings.Join(words, ", "), func(ctx context.Context, o *sema.Operator) error { return o.Set(ctx, rule) }})
		}
		list = append(list, q.keyChanges(name, st, prune)...)
	}
	return list, nil
}

// change is the rule that a semaphore lacks, without its keys, and what it says.
func (q *wanted) change(st sema.State, prune bool) (rule sema.Rule, words []string) {
	limit, watched := int(q.Limit), st.Observed != nil
	observe := watched
	if q.Observe != nil {
		observe = *q.Observe
	}
	if limit > 0 && (st.Limit != limit || !st.Pinned) {
		rule.Limit, words = limit, append(words, fmt.Sprintf("limit %d", limit))
	}
	if observe != watched {
		rule.Limit = cmp.Or(limit, st.Limit)
		words = append(words, map[bool]string{true: "only watched", false: "enforced"}[observe])
	}
	rule.Observe = observe && rule.Limit > 0
	if q.caps != st.Caps && (q.Caps != nil || prune) {
		for i, n := range q.caps {
			rule.Caps[i] = cmp.Or(n, engine.MaxLimit)
		}
		words = append(words, capsWords(q.caps))
	}
	var pools []string
	for pool, a := range q.Pools {
		if there(st).Amount(pool) != q.pools.Amount(pool) {
			pools = append(pools, pool+"="+a.String())
		}
	}
	for pool := range there(st).All() {
		if q.pools.Of(pool) == 0 && prune {
			pools = append(pools, pool+"=0")
		}
	}
	if slices.Sort(pools); len(pools) > 0 {
		rule.Pools = engine.Pools(strings.Join(pools, ","))
		words = append(words, poolsWords(rule.Pools))
	}
	return rule, words
}

// keyChanges are those of a semaphore's keys. A part of a rule that is to be pruned goes with the whole rule, and the rest comes back.
func (q *wanted) keyChanges(name string, st sema.State, prune bool) (list []change) {
	rules := map[engine.Key]engine.KeyState{}
	for _, k := range st.Keys {
		rule := q.keys[k.Key]
		more := rule.Limit == 0 && k.Cap != view.CapOf(st.Caps, k.Key) || rule.Share == 0 && k.Share != engine.DefaultShare
		if rules[k.Key] = k; k.Ruled && prune && (more || rule == sema.Rule{}) {
			delete(rules, k.Key)
			list = append(list, change{name, "key " + k.Key.String() + ": unset", func(ctx context.Context, o *sema.Operator) error { return o.Unset(ctx, k.Key.Names()...) }})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(q.keys)) {
		rule, is := q.keys[key], rules[key]
		var words []string
		if rule.Limit > 0 && rule.Limit != is.Cap {
			words = append(words, fmt.Sprintf("limit %d", rule.Limit))
		}
		if rule.Share > 0 && rule.Share != cmp.Or(is.Share, engine.DefaultShare) {
			words = append(words, fmt.Sprintf("share %d", rule.Share))
		}
		if len(words) > 0 {
			list = append(list, change{name, "key " + key.String() + ": " + strings.Join(words, ", "), func(ctx context.Context, o *sema.Operator) error { return o.Set(ctx, rule, key.Names()...) }})
		}
	}
	return list
}
