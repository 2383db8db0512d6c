package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sema/cmd/sema/internal/top"
	"sema/engine"
	"sema/internal/loop"
	"sema/internal/view"
	seen "sema/watch"
)

const lsHelp = `List the semaphores that exist: those in use, and those whose limit an operator
set. On Redis this reads all keys of the database.`

func (p *program) lsCommand() *cobra.Command {
	filter := ""
	cmd := p.newCommand("ls [flags]", "List semaphores", lsHelp, func(cmd *cobra.Command, _ []string) error {
		at, err := p.open(defaultLease)
		if err != nil {
			return err
		}
		defer at.close()
		list, _, err := at.list(cmd.Context(), top.Options{Filter: filter}, 0)
		if err != nil {
			return err
		}
		if p.json {
			return p.writeJSON(listJSON{Semaphores: p.summaries(list)})
		}
		if len(list) == 0 {
			such := ""
			if filter != "" {
				such = fmt.Sprintf(" with %q in their names", filter)
			}
			p.say("%s has no semaphores%s now", at.where(), such)
			return nil
		}
		return p.write("%s", aligned(func(t io.Writer) {
			fmt.Fprintf(t, "NAME\tLIMIT\tUSED\tHOLDERS\tWAITING\n")
			for _, s := range list {
				state := ""
				switch {
				case s.Err != nil:
					state = "  cannot be read"
				case s.Paused:
					state = "  paused"
				}
				fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d%s\n", printable(s.Name, engine.MaxName), s.Limit, s.Used, s.Holders, s.Waiting, state)
			}
		}))
	})
	cmd.Flags().StringVar(&filter, "filter", "", "only names that contain this, in upper or lower case")
	p.jsonFlag(cmd, `ls prints an object with one list:
  semaphores: list of name, limit, pinned, paused, used, free (weights),
    holding (permits), waiting (callers), oldest_seconds (the longest wait),
    error (only if the semaphore cannot be read: the rest may be old, or 0)`)
	return cmd
}

// listJSON is a list of semaphores.
type listJSON struct {
	Total      *int           `json:"total,omitempty"` // of those that match
	Semaphores []view.Summary `json:"semaphores"`
}

// list looks at all semaphores, and says how many there are; rows bounds the list;
// 0: all.
func (at *openEngine) list(ctx context.Context, o top.Options, rows int) (list []seen.Summary, total int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 6*callTime) // a large database takes time
	defer cancel()
	err = loop.Repeat(ctx, func() (err error) {
		list, total, err = top.Once(ctx, at.Engine, o, rows)
		return err
	})
	return list, total, unreachable("list", "", err)
}

func (p *program) summaries(list []seen.Summary) []view.Summary {
	shown := []view.Summary{}
	for _, s := range list {
		j := view.Summarize(s)
		if s.Err != nil {
			j.Error = p.clean(s.Err.Error())
		}
		shown = append(shown, j)
	}
	return shown
}
