package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
	"sema/internal/view"
)

const showHelp = `Show a semaphore: its limit, its holders and its waiters, in the order of
service. Pools (see sema run --take) have a line each. If keys share it (see sema
run --key), the keys come first, at most a hundred of them, the one with the most
waiters at the top, and those below a key behind it; then the waiters, key by
key. What a key holds and who waits are with all below it. "acme itself" is
acme's callers without a further name.`

func (p *program) showCommand() *cobra.Command {
	every := time.Duration(0)
	cmd := p.newCommand("show [flags] NAME", "Show limit, holders and waiters of a semaphore", showHelp, func(cmd *cobra.Command, args []string) error {
		return p.show(cmd, every, func(ctx context.Context, at *openEngine) (found, error) {
			st, err := p.stateAt(ctx, at, args[0])
			return found{doc: view.Of(args[0], st), table: table(args[0], st)}, err
		})
	})
	watchFlag(cmd, &every)
	p.jsonFlag(cmd, `show prints an object; times are seconds, with fractions:
  name, limit, pinned (an operator set the limit; it stays when idle),
  paused (no permits are granted), used, free (weights), holding (permits),
  waiting (callers), oldest_seconds (the longest wait)
  caps (the most that a key without a rule may hold: of one name, of two, of
    three; 0: no such cap; zeros at the end are left out)
  adapting (missing if nobody finds the limit): min, max, bad (part of the time
    held that went badly in the last window, 0 to 1)
  cooldown (missing if there is none): left_seconds, by (who said so)
  pools: list of pool, limit (0: an operator ended it), used, waiting; of a rate
    also rate, and next_seconds (until one more can be taken; missing: all are there)
  observed (missing if the limit is enforced): grants, would_wait (so many of them
    would have waited), for_limit (those not for a cap or a pool alone), most (the
    most weight held at once), enough (the limit with which 99 % would not have
    waited for it)
  keys: list of key (a text, or a list of several names; the last is "" for a
    key's own callers beside those below it), held, waiting, oldest_seconds, cap
    (0: none), share, ruled (it has a cap or a share of its own), full (its own
    permits are all that it waits for), before (how many keys beside it go before
    it), why
  holders: list of permit, key, takes (amounts by pool), weight, slot (null:
    none), token (null: not recorded), age_seconds (null: not recorded),
    lease_left_seconds, revoked, would_wait (true, or missing), host, pid, label,
    version (of sema, if known), caller (the caller's own id of the permit)
  waiters: list of position (from 1, among those of its key that take the same
    pools), permit, key, takes, weight, waiting_seconds, behind (how many more
    callers wait in its process), host, pid, label, version, caller`)
	return cmd
}

// table is a semaphore for human eyes. Text that others wrote is made printable.
func table(name string, st sema.State) string {
	rule := ""
	if st.Caps != (sema.Caps{}) {
		rule = ", caps " + st.Caps.String()
	}
	if st.Pinned {
		rule += " (pinned)"
	}
	if st.Paused {
		rule += ", paused"
	}
	if c := st.Cooldown; c != nil {
		rule += fmt.Sprintf(", nobody begins for %s, said %s", brief(c.Left), printable(view.Says(c.By), 2*engine.MaxLabel))
	}
	head := fmt.Sprintf("%s: limit %d%s, used %d, free %d, waiting %d\n", printable(name, engine.MaxName), st.Limit, rule, st.Used, max(0, st.Limit-st.Used), st.Waiting())
	observes := ""
	if st.Observed != nil {
		observes = "only watched: " + view.Observes(st.Observed, st.Limit)
	}
	for _, text := range []string{observes, view.Adapts(st), releases(st)} {
		if text != "" {
			head += text + "\n"
		}
	}
	shown, keyed, pooled := view.Of(name, st), view.Keyed(st), len(st.Pools) > 0
	return head + aligned(func(t io.Writer) { tableOfPools(t, st.Pools) }) + aligned(func(t io.Writer) { tableOfKeys(t, view.Tree(shown.Keys, st.Caps)) }) + aligned(func(t io.Writer) {
		if len(st.Holders) > 0 {
			fmt.Fprintf(t, "HOLDER\t%sWEIGHT\t%sHELD\tLEASE LEFT\tHOST\tPID\tLABEL\n", keyCell(keyed, "KEY"), takesCell(pooled, "TAKES"))
		}
		for _, h := range view.ByToken(st.Holders) {
			revoked := ""
			if h.Revoked {
				revoked = " (revoked)"
			}
			if h.WouldWait {
				revoked += " (would wait)"
			}
			fmt.Fprintf(t, "%s\t%s%d\t%s%s\t%s%s\t%s\n", h.ID, keyCell(keyed, h.Key), h.Weight, takesCell(pooled, h.Takes), held(h), brief(h.Left), revoked, hostPIDLabel(h.Client))
		}
	}) + aligned(func(t io.Writer) {
		if len(st.Waiters) > 0 {
			fmt.Fprintf(t, "WAITER\t%sWEIGHT\t%sWAITING\tPOSITION\tHOST\tPID\tLABEL\n", keyCell(keyed, "KEY"), takesCell(pooled, "TAKES"))
		}
		for i, w := range st.Waiters {
			behind := ""
			if w.Behind > 0 {
				behind = fmt.Sprintf(" (+%d)", w.Behind)
			}
			fmt.Fprintf(t, "%s\t%s%d\t%s%s\t%d\t%s%s\n", w.ID, keyCell(keyed, w.Key), w.Weight, takesCell(pooled, w.Takes), brief(w.Waiting), shown.Waiters[i].Position, hostPIDLabel(w.Client), behind)
		}
	})
}

// keyCell is the cell of a key, or its heading; there is none where no keys are.
func keyCell(keyed bool, key engine.Key) string {
	if !keyed {
		return ""
	}
	return printable(key.String(), 60) + "\t"
}

// takesCell is the cell of the pools that a permit takes, or its heading; a semaphore without pools has none.
func takesCell(pooled bool, takes engine.Pools) string {
	if !pooled {
		return ""
	}
	return cmp.Or(string(takes), "-") + "\t"
}

// tableOfPools is the pools of a semaphore.
func tableOfPools(t io.Writer, pools []engine.PoolState) {
	for i, p := range pools {
		if i == 0 {
			fmt.Fprintf(t, "POOL\tLIMIT\tUSED\tWAITING\n")
		}
		next := ""
		if p.Next > 0 {
			next = ", the next in " + brief(p.Next)
		}
		fmt.Fprintf(t, "%s\t%s\t%d%s\t%d\n", printable(p.Pool, engine.MaxPool), p.Amount(), p.Used, next, p.Waiting)
	}
}

// held is how long a permit has been held, for an eye.
func held(h engine.Holder) string {
	if h.Token == 0 {
		return "?"
	}
	return brief(h.Age)
}

func hostPIDLabel(c engine.Client) string {
	return fmt.Sprintf("%s\t%d\t%s", printable(c.Host, 60), c.PID, printable(c.Label, 60))
}

// releases says how many of those who hold and wait run which release of sema, if they
// run several; else nothing.
func releases(st sema.State) string {
	n := map[string]int{}
	for i := range st.Holders {
		n[st.Holders[i].Client.Version]++
	}
	for i := range st.Waiters {
		n[st.Waiters[i].Client.Version]++
	}
	delete(n, "") // they do not say, as callers of the HTTP API
	if len(n) < 2 {
		return ""
	}
	var list []string
	for _, version := range slices.Sorted(maps.Keys(n)) {
		list = append(list, fmt.Sprintf("%d of sema %s", n[version], printable(version, 30)))
	}
	return "releases: " + strings.Join(list, ", ")
}

// mostKeys is how many keys human eyes are shown.
const mostKeys = 100

// tableOfKeys is the keys that share a semaphore, in the order of view.Tree.
func tableOfKeys(t io.Writer, keys []view.Key) {
	if len(keys) == 0 {
		return
	}
	fmt.Fprintf(t, "KEY\tHELD\tCAP\tSHARE\tWAITING\tLONGEST\tWHY\n")
	for _, k := range keys[:min(mostKeys, len(keys))] {
		most, longest := "-", "-"
		if k.Cap > 0 {
			most = fmt.Sprint(k.Cap)
		}
		if k.Waiting > 0 {
			longest = brief(time.Duration(k.Oldest * float64(time.Second)))
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%s\t%s\n", inTree(k.Key), k.Held, most, k.Share, k.Waiting, longest, printable(k.Why, 100))
	}
	if n := len(keys) - mostKeys; n > 0 {
		fmt.Fprintf(t, "and %d more\n", n)
	}
}

// inTree is the last name of a key, two cells further to the right for each level above it.
func inTree(key engine.Key) string {
	title := view.Title(key)
	return strings.Repeat("  ", key.Level()-1) + printable(title[strings.LastIndex(title, "/")+1:], 60)
}

// brief is a duration with as many digits as an eye wants.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
