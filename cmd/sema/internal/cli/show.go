package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sema"
	"sema/internal/view"
)

const showHelp = `Show a semaphore: its limit, what is held, who holds it and who waits, the
waiters in the order they will be served.

--json prints an object; times are seconds, with fractions:
  name, limit, pinned (an operator set the limit; it is kept when idle),
  paused (nobody is granted a permit), used, free (weights), holding (permits),
  waiting (callers), oldest_seconds (the longest wait)
  holders: list of permit, weight, slot (null: none), token (null: not
    recorded), age_seconds (null: not recorded), lease_left_seconds,
    revoked, host, pid, label, caller (what it calls the permit)
  waiters: list of position (from 1), permit, weight, waiting_seconds,
    behind (so many more callers wait in its process), host, pid, label, caller`

func (p *program) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show [flags] NAME",
		Short:             "Show limit, holders and waiters of a semaphore",
		Long:              showHelp,
		Args:              needArgs(1, 1, "NAME"),
		ValidArgsFunction: p.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := p.state(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if p.json {
				return p.writeJSON(view.Of(args[0], st))
			}
			return p.write("%s", table(args[0], st))
		},
	}
	p.jsonFlag(cmd)
	return cmd
}

// table is a semaphore for human eyes. Text that others wrote is made printable.
func table(name string, st sema.State) string {
	var b strings.Builder
	pinned := ""
	if st.Pinned {
		pinned = " (pinned)"
	}
	if st.Paused {
		pinned += ", paused"
	}
	fmt.Fprintf(&b, "%s: limit %d%s, used %d, free %d, waiting %d\n", printable(name, sema.MaxName), st.Limit, pinned, st.Used, max(0, st.Limit-st.Used), st.Waiting())
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	if len(st.Holders) > 0 {
		fmt.Fprintf(t, "HOLDER\tWEIGHT\tHELD\tLEASE LEFT\tHOST\tPID\tLABEL\n")
	}
	for _, h := range view.ByToken(st.Holders) {
		age := "?"
		if h.Token != 0 {
			age = brief(h.Age)
		}
		revoked := ""
		if h.Revoked {
			revoked = " (revoked)"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s%s\t%s\t%d\t%s\n", h.ID, h.Weight, age, brief(h.Left), revoked,
			printable(h.Client.Host, 60), h.Client.PID, printable(h.Client.Label, 60))
	}
	_ = t.Flush() // into memory
	if len(st.Waiters) > 0 {
		fmt.Fprintf(t, "WAITER\tWEIGHT\tWAITING\tPOSITION\tHOST\tPID\tLABEL\n")
	}
	for i, w := range st.Waiters {
		behind := ""
		if w.Behind > 0 {
			behind = fmt.Sprintf(" (+%d)", w.Behind)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%s\t%d\t%s%s\n", w.ID, w.Weight, brief(w.Waiting), i+1,
			printable(w.Client.Host, 60), w.Client.PID, printable(w.Client.Label, 60), behind)
	}
	_ = t.Flush()
	return b.String()
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
