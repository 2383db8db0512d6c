package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sema"
)

const showHelp = `Show a semaphore: its limit, what is held, who holds it and who waits, the
waiters in the order they will be served.

--json prints an object; times are seconds, with fractions:
  name, limit, pinned (an operator set the limit; it is kept when idle),
  paused (nobody is granted a permit), used, free (weights)
  holders: list of permit, weight, slot (null: none), token (null: not
    recorded), age_seconds (null: not recorded), lease_left_seconds,
    revoked, host, pid, label
  waiters: list of position (from 1), permit, weight, waiting_seconds,
    host, pid, label`

func (p *program) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show [flags] NAME",
		Short:             "Show limit, holders and waiters of a semaphore",
		Long:              showHelp,
		Args:              needArgs(1, 1, "NAME"),
		ValidArgsFunction: p.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			session, closing, err := p.session(args[0])
			if err != nil {
				return err
			}
			defer closing()
			st, err := state(ctx, session, args[0])
			if err != nil {
				return err
			}
			if p.json {
				return p.writeJSON(showState(args[0], st))
			}
			return p.write("%s", table(args[0], st))
		},
	}
	p.jsonFlag(cmd)
	return cmd
}

type showJSON struct {
	Name    string       `json:"name"`
	Limit   int          `json:"limit"`
	Pinned  bool         `json:"pinned"`
	Paused  bool         `json:"paused"`
	Used    int          `json:"used"`
	Free    int          `json:"free"`
	Holders []holderJSON `json:"holders"`
	Waiters []waiterJSON `json:"waiters"`
}

type holderJSON struct {
	Permit  string   `json:"permit"`
	Weight  int      `json:"weight"`
	Slot    *int     `json:"slot"`
	Token   *int64   `json:"token"`
	Age     *float64 `json:"age_seconds"`
	Left    float64  `json:"lease_left_seconds"`
	Revoked bool     `json:"revoked"`
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	Label   string   `json:"label"`
}

type waiterJSON struct {
	Position int     `json:"position"`
	Permit   string  `json:"permit"`
	Weight   int     `json:"weight"`
	Waiting  float64 `json:"waiting_seconds"`
	Host     string  `json:"host"`
	PID      int     `json:"pid"`
	Label    string  `json:"label"`
}

func showState(name string, st sema.State) showJSON {
	v := showJSON{
		Name: name, Limit: st.Limit, Pinned: st.Pinned, Paused: st.Paused, Used: st.Used, Free: max(0, st.Limit-st.Used),
		Holders: []holderJSON{}, Waiters: []waiterJSON{},
	}
	for _, h := range byToken(st.Holders) {
		j := holderJSON{
			Permit: h.ID, Weight: h.Weight, Left: h.Left.Seconds(), Revoked: h.Revoked,
			Host: h.Client.Host, PID: h.Client.PID, Label: h.Client.Label,
		}
		if h.Slot >= 0 {
			j.Slot = &h.Slot
		}
		if h.Token != 0 {
			age := h.Age.Seconds()
			j.Token, j.Age = &h.Token, &age
		}
		v.Holders = append(v.Holders, j)
	}
	for i, w := range st.Waiters {
		v.Waiters = append(v.Waiters, waiterJSON{
			Position: i + 1, Permit: w.ID, Weight: w.Weight, Waiting: w.Waiting.Seconds(),
			Host: w.Client.Host, PID: w.Client.PID, Label: w.Client.Label,
		})
	}
	return v
}

// byToken sorts holders by token, the order in which they got their permits.
func byToken(holders []sema.Holder) []sema.Holder {
	sorted := slices.Clone(holders)
	slices.SortStableFunc(sorted, func(a, b sema.Holder) int { return cmp.Compare(a.Token, b.Token) })
	return sorted
}

// table is a semaphore for human eyes. What others wrote is made printable.
func table(name string, st sema.State) string {
	var b strings.Builder
	pinned := ""
	if st.Pinned {
		pinned = " (pinned)"
	}
	if st.Paused {
		pinned += ", paused"
	}
	fmt.Fprintf(&b, "%s: limit %d%s, used %d, free %d\n", printable(name, sema.MaxName), st.Limit, pinned, st.Used, max(0, st.Limit-st.Used))
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	if len(st.Holders) > 0 {
		fmt.Fprintf(t, "HOLDER\tWEIGHT\tHELD\tLEASE LEFT\tHOST\tPID\tLABEL\n")
	}
	for _, h := range byToken(st.Holders) {
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
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%s\t%d\t%s\n", w.ID, w.Weight, brief(w.Waiting), i+1,
			printable(w.Client.Host, 60), w.Client.PID, printable(w.Client.Label, 60))
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
