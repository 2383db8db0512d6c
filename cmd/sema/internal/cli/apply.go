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
)

const applyHelp = `Set the limits that a JSON file has, which a repository and its CI can keep:

  {
    "api":   {"limit": 200, "caps": [20, 4], "pools": {"rpm": "500/1m"}},
    "build": {"limit": 4, "keys": {"acme/alice": {"limit": 1, "share": 300}}}
  }

caps are how much each key of one name may hold, each of two names, each of three;
0 is no cap. What the file leaves out stays as it is. With --prune, what an operator
set and the file leaves out is unset: caps, pools, rules of keys, and the limits of
other semaphores. A second run changes nothing.

If one entry is wrong, nothing is changed.`

// wanted is an entry of the file.
type wanted struct {
	Limit int                      `json:"limit"`
	Caps  []int                    `json:"caps"`
	Pools map[string]engine.Amount `json:"pools"`
	Keys  map[string]struct {
		Limit int `json:"limit"`
		Share int `json:"share"`
	} `json:"keys"`

	caps  engine.Caps
	pools engine.Pools
	keys  map[engine.Key]sema.Rule
}

// change is one that apply makes.
type change struct {
	name, text string
	pools      engine.Pools
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
	var text []byte
	var err error
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
	all, d := map[string]*wanted{}, json.NewDecoder(bytes.NewReader(text))
	at := int64(0)
	err = func() error {
		if t, err := d.Token(); err != nil || t != json.Delim('{') {
			return cmp.Or(err, errors.New("want an object with a field for each semaphore"))
		}
		for d.More() {
			t, err := d.Token()
			at = d.InputOffset()
			if err != nil {
				return err
			}
			name, q := t.(string), &wanted{} // a field begins with its name
			var entry json.RawMessage
			if err := cmp.Or(engine.ValidateName(name), d.Decode(&entry)); err != nil {
				return err
			}
			if all[name] != nil {
				return fmt.Errorf("%q is there twice", name)
			}
			all[name] = q
			fields := json.NewDecoder(bytes.NewReader(entry))
			fields.DisallowUnknownFields()
			err = cmp.Or(twice(json.NewDecoder(bytes.NewReader(entry))), fields.Decode(q), q.check())
			if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
				err = fmt.Errorf("%s: no %s can stand there", kind.Field, kind.Value)
			}
			if err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
		}
		if _, err := d.Token(); err != nil {
			return err
		}
		if at = d.InputOffset(); len(bytes.TrimSpace(text[at:])) > 0 {
			return errors.New("there is something behind the object")
		}
		return nil
	}()
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = max(at, syntax.Offset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the file ends too early")
	}
	if err != nil {
		line := 1 + bytes.Count(text[:min(at, int64(len(text)))], []byte("\n"))
		return nil, usage(p.command("help", "apply"), "%s:%d: %s. Nothing was changed", file, line, strings.ReplaceAll(err.Error(), "json: ", ""))
	}
	return all, nil
}

// twice says which name an object has twice, or an object in it: encoding/json would take the last one.
func twice(d *json.Decoder) error {
	t, err := d.Token()
	if delim, ok := t.(json.Delim); err != nil || !ok || delim == ']' || delim == '}' {
		return err
	}
	seen := map[json.Token]bool{}
	for d.More() {
		if t == json.Delim('{') {
			name, err := d.Token()
			if err != nil {
				return err
			}
			if seen[name] {
				return fmt.Errorf("%q is there twice", name)
			}
			seen[name] = true
		}
		if err := twice(d); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// check says what is wrong with an entry.
func (q *wanted) check() (err error) {
	if len(q.Caps) > engine.MaxDepth {
		return fmt.Errorf("%d caps: want at most %d", len(q.Caps), engine.MaxDepth)
	}
	copy(q.caps[:], q.Caps)
	for i, n := range q.caps {
		q.caps[i] = n % engine.MaxLimit // which is no cap
	}
	q.pools, err = engine.PoolsOf(q.Pools, 1)
	if err := cmp.Or(engine.ValidateRange("", "limit", q.Limit, 0, engine.MaxLimit), q.caps.Validate(), err); err != nil {
		return err
	}
	q.keys = map[engine.Key]sema.Rule{}
	for name, k := range q.Keys {
		key, err := engine.ParseKey(name)
		err = cmp.Or(err, engine.ValidateRange("", "limit", k.Limit, 0, engine.MaxLimit), engine.ValidateRange("", "share", k.Share, 0, engine.MaxShare))
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
		q.keys[key] = sema.Rule{Limit: k.Limit, Share: k.Share}
	}
	return nil
}

// changes lists the differences between the file and the engine.
func (p *program) changes(ctx context.Context, at *openEngine, all map[string]*wanted, prune bool) (list []change, err error) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var st sema.State
		err := p.operateAt(ctx, at, "state", name, func(ctx context.Context, o *sema.Operator) (err error) {
			if st, err = o.State(ctx); errors.Is(err, sema.ErrNotFound) {
				return nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if all[name].Limit == 0 && st.Limit == 0 {
			return nil, usage("\"limit\": 10", "%q: there is no such semaphore, and the file gives it no limit. Nothing was changed", name)
		}
		some := all[name].changes(name, st, prune)
		if len(some) > 0 {
			_, err = there(st).With(some[0].pools)
		}
		if err != nil {
			return nil, usage("--prune", "%q: %v. Nothing was changed", name, err)
		}
		list = append(list, some...)
	}
	if !prune {
		return list, nil
	}
	others, err := at.list(ctx, "")
	for _, s := range others {
		if s.Pinned && all[s.Name] == nil {
			list = append(list, change{s.Name, "unset", "", func(ctx context.Context, o *sema.Operator) error { return o.Unset(ctx) }})
		}
	}
	return list, err
}

// changes are those of one semaphore.
func (q *wanted) changes(name string, st sema.State, prune bool) (list []change) {
	var words []string
	rule := sema.Rule{}
	if q.Limit > 0 && (st.Limit != q.Limit || !st.Pinned) {
		rule.Limit, words = q.Limit, append(words, fmt.Sprintf("limit %d", q.Limit))
	}
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
	if len(words) > 0 {
		list = append(list, change{name, strings.Join(words, ", "), rule.Pools, func(ctx context.Context, o *sema.Operator) error { return o.Set(ctx, rule) }})
	}
	rules := map[engine.Key]engine.KeyState{}
	for _, k := range st.Keys {
		if k.Ruled {
			rules[k.Key] = k
		}
		if _, ok := q.keys[k.Key]; k.Ruled && !ok && prune {
			list = append(list, change{name, "key " + k.Key.String() + ": unset", "", func(ctx context.Context, o *sema.Operator) error { return o.Unset(ctx, k.Key.Names()...) }})
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
			text := "key " + key.String() + ": " + strings.Join(words, ", ")
			list = append(list, change{name, text, "", func(ctx context.Context, o *sema.Operator) error { return o.Set(ctx, rule, key.Names()...) }})
		}
	}
	return list
}
