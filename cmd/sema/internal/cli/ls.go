package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
)

const lsHelp = `List the semaphores that exist: those in use, and those whose limit an
operator set. On Redis this goes through all keys of the database.

--json prints an object with one list:
  semaphores: list of name, limit, pinned, paused, used, free (weights),
    holders, waiters (how many)`

func (p *program) lsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List semaphores",
		Long:  lsHelp,
		Args:  needArgs(0, 0, "without arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := p.list(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return p.writeJSON(lsJSON{list})
			}
			if len(list) == 0 {
				p.say("there are no semaphores now")
				return nil
			}
			var b strings.Builder
			t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
			fmt.Fprintf(t, "NAME\tLIMIT\tUSED\tHOLDERS\tWAITERS\n")
			for _, s := range list {
				paused := ""
				if s.Paused {
					paused = "  paused"
				}
				fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d%s\n", printable(s.Name, sema.MaxName), s.Limit, s.Used, s.Holders, s.Waiters, paused)
			}
			_ = t.Flush() // into memory
			return p.write("%s", b.String())
		},
	}
	p.jsonFlag(cmd)
	return cmd
}

type lsJSON struct {
	Semaphores []lsEntryJSON `json:"semaphores"`
}

type lsEntryJSON struct {
	Name    string `json:"name"`
	Limit   int    `json:"limit"`
	Pinned  bool   `json:"pinned"`
	Paused  bool   `json:"paused"`
	Used    int    `json:"used"`
	Free    int    `json:"free"`
	Holders int    `json:"holders"`
	Waiters int    `json:"waiters"`
}

func (p *program) list(ctx context.Context) ([]lsEntryJSON, error) {
	e, closing, err := p.engine(defaultLease)
	if err != nil {
		return nil, err
	}
	defer closing()
	listing, cancel := context.WithTimeout(ctx, 6*callTime) // a large database takes time
	defer cancel()
	names, err := e.List(listing)
	if err != nil {
		return nil, unreachable("list", "", err)
	}
	list := []lsEntryJSON{}
	for _, name := range names {
		session, err := e.Open(name, engine.Client{}, func(engine.Notification) {})
		if err != nil {
			continue // a key that looks like ours under a name that cannot be
		}
		st, err := session.State(listing)
		_ = session.Close()
		if err != nil {
			return nil, unreachable("state", name, err)
		}
		if st.Limit == 0 {
			continue // gone since
		}
		list = append(list, lsEntryJSON{
			Name: name, Limit: st.Limit, Pinned: st.Pinned, Paused: st.Paused, Used: st.Used, Free: max(0, st.Limit-st.Used),
			Holders: len(st.Holders), Waiters: len(st.Waiters),
		})
	}
	return list, nil
}
